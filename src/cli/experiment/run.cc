// elasticdl experiment run.
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"
#include "elasticdl/experiment/statistics.h"
#include "elasticdl/flags/flag_builder.h"
#include "experiment/end_signals.h"
#include "experiment/experiment.h"
#include "experiment/live_job.h"
#include "experiment/run_one.h"
#include "experiment/store.h"

namespace elasticdl::cli {
namespace {

using experiment::Plan;
using experiment::Run;
using experiment::RunResult;

std::string Describe(const RunResult& result) {
  if (!result.ok) return absl::StrCat("failed: ", result.reason);
  if (!result.policy.empty()) {
    return absl::StrFormat("makespan %.1f s, %.0f %% of the slots in use",
                           result.shared.makespan,
                           result.shared.utilisation * 100);
  }
  std::string text =
      absl::StrFormat("%.0f records/s", result.measured.records_per_second);
  if (result.measured.kills > 0) {
    absl::StrAppend(&text, ", ", Count(result.measured.kills, "kill"));
  }
  if (!result.measured.recovery_ms.empty()) {
    absl::StrAppendFormat(
        &text, ", recovery %.0f ms",
        experiment::Percentile(result.measured.recovery_ms, 50));
  }
  if (!result.ledger.empty()) absl::StrAppend(&text, ", ledger exact");
  return text;
}

struct Progress {
  size_t number = 0;
  size_t all = 0;
};

// One run, and its result kept. CANCELLED: it was interrupted.
absl::Status RunAndKeep(const Plan& plan, const Run& run,
                        const Progress& progress, ExperimentStore& store,
                        ExperimentSignals& signals) {
  std::printf("[%zu/%zu] %s%sround %lld: ", progress.number, progress.all,
              run.Label().c_str(), run.Label().empty() ? "" : ", ",
              static_cast<long long>(run.repeat) + 1);
  std::fflush(stdout);
  ELASTICDL_ASSIGN_OR_RETURN(const std::string folder, store.RunFolder(run.id));
  const RunFolders folders = {folder, store.NotesFolder()};
  absl::StatusOr<RunResult> result =
      plan.shared() ? RunShared(plan, run, folders, signals)
                    : RunOne(plan, run, folders, signals);
  if (!result.ok()) {
    std::printf("%s\n", std::string(result.status().message()).c_str());
    return result.status();
  }
  std::printf("%s (%.0f s)\n", Describe(*result).c_str(), result->wall_seconds);
  std::fflush(stdout);
  return store.Add(*result);
}

bool IsDone(const ExperimentStore& store, const Run& run) {
  const auto it = store.results().find(run.id);
  return it != store.results().end() && it->second.ok;
}

int RunAll(const Plan& plan, ExperimentStore& store,
           ExperimentSignals& signals) {
  const std::vector<Run> runs = experiment::ListRuns(plan);
  Progress progress;
  progress.all = runs.size();
  absl::Status status;
  int failed = 0;
  for (const Run& run : runs) {
    ++progress.number;
    if (IsDone(store, run)) continue;
    status = RunAndKeep(plan, run, progress, store, signals);
    if (!status.ok()) break;
    if (!IsDone(store, run)) ++failed;
    // Whoever looks in between sees what is known so far.
    status = store.WriteReport(plan);
    if (!status.ok()) break;
  }
  const absl::Status written = store.WriteReport(plan);
  if (absl::IsCancelled(status)) {
    std::fprintf(stderr,
                 "interrupted; the same command continues with this run\n");
    return 130;
  }
  status.Update(written);
  if (!status.ok()) return ExperimentFailed(status, 1);
  std::printf("report: %s\n", JoinPath(store.folder(), "report.html").c_str());
  if (failed == 0) return 0;
  return ExperimentFailed(
      absl::InternalError(absl::StrCat(
          Count(failed, "run"), " failed; the same command tries them again")),
      1);
}

}  // namespace

int RunExperimentRun(const std::vector<std::string>& args) {
  std::vector<std::string> paths;
  std::string output;
  bool again = false;
  flags::FlagSet set(
      "elasticdl experiment run",
      "Runs a plan, on this machine or (with --image among its flags) on a "
      "cluster, and writes results.csv, results.json and "
      "report.html. Ctrl-C ends it; the same command continues: runs that are "
      "done are not run again.");
  set.AddPositional("PLAN", &paths, 1, "The plan, a YAML file", 1);
  set.Add("output", &output,
          flags::Info("Options",
                      "Folder for the results; default: "
                      "NAME-results with the plan's name.")
              .Value("DIR"));
  set.Add("again", &again,
          flags::Info("Options", "Forget earlier results in that folder."));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const absl::StatusOr<Plan> plan = LoadPlan(paths[0]);
  if (!plan.ok()) return ExperimentFailed(plan.status(), 2);
  if (output.empty()) output = absl::StrCat(plan->name, "-results");
  std::error_code error;
  output = std::filesystem::absolute(output, error).string();
  if (again) {
    for (const char* name : {"runs.jsonl", "runs", "charts"}) {
      const absl::Status status = RemoveTree(JoinPath(output, name));
      if (!status.ok()) return ExperimentFailed(status, 1);
    }
  }
  ExperimentSignals signals;
  absl::StatusOr<ExperimentStore> store = ExperimentStore::Open(output);
  if (!store.ok()) return ExperimentFailed(store.status(), 1);
  const absl::Status removed = RemoveLeftJobs(store->NotesFolder());
  if (!removed.ok()) return ExperimentFailed(removed, 1);
  return RunAll(*plan, *store, signals);
}

}  // namespace elasticdl::cli
