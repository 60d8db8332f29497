// Dispatch, and the commands that start no job.
#include "experiment/experiment.h"

#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "command.h"
#include "elasticdl/common/text.h"
#include "elasticdl/flags/flag_builder.h"
#include "experiment/store.h"

namespace elasticdl::cli {

int ExperimentFailed(const absl::Status& status, int code) {
  std::fprintf(stderr, "elasticdl experiment: %s\n",
               std::string(status.message()).c_str());
  return code;
}

int RunExperimentShow(const std::vector<std::string>& args) {
  std::vector<std::string> paths;
  flags::FlagSet set("elasticdl experiment show",
                     "Checks a plan and lists its runs in their order, with "
                     "what happens to them.");
  set.AddPositional("PLAN", &paths, 1, "The plan, a YAML file", 1);
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const auto plan = LoadPlan(paths[0]);
  if (!plan.ok()) return ExperimentFailed(plan.status(), 2);
  const std::vector<experiment::Run> runs = experiment::ListRuns(*plan);
  for (const experiment::Run& run : runs) {
    std::printf("%s  round %lld  %s\n", run.id.c_str(),
                static_cast<long long>(run.repeat) + 1, run.Label().c_str());
    for (const experiment::Action& action : run.actions) {
      const std::string when = action.step >= 0
                                   ? absl::StrCat("step ", action.step)
                                   : absl::StrCat(action.at, " s");
      std::printf("    %s %lld at %s\n",
                  std::string(experiment::ActionName(action.kind)).c_str(),
                  static_cast<long long>(action.count), when.c_str());
    }
  }
  std::printf("%s\n", Count(static_cast<int64_t>(runs.size()), "run").c_str());
  return 0;
}

int RunExperimentReport(const std::vector<std::string>& args) {
  std::vector<std::string> paths;
  std::string output;
  flags::FlagSet set("elasticdl experiment report",
                     "Writes the tables and the report of the runs so far "
                     "again.");
  set.AddPositional("PLAN", &paths, 1, "The plan, a YAML file", 1);
  set.Add("output", &output,
          flags::Info("Options",
                      "Folder of the results; default: NAME-results "
                      "with the plan's name.")
              .Value("DIR"));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const auto plan = LoadPlan(paths[0]);
  if (!plan.ok()) return ExperimentFailed(plan.status(), 2);
  if (output.empty()) output = absl::StrCat(plan->name, "-results");
  if (!IsDirectory(output)) {
    return ExperimentFailed(
        absl::NotFoundError(absl::StrCat("no results in ", output)), 1);
  }
  const auto store = ExperimentStore::Open(output);
  if (!store.ok()) return ExperimentFailed(store.status(), 1);
  const absl::Status status = store->WriteReport(*plan);
  if (!status.ok()) return ExperimentFailed(status, 1);
  std::printf("%s\n", JoinPath(output, "report.html").c_str());
  return 0;
}

int RunExperimentTrace(const std::vector<std::string>& args) {
  experiment::TraceSpec spec;
  double seconds = 600;
  int64_t seed = 1;
  std::string action = "kill";
  flags::FlagSet set("elasticdl experiment trace",
                     "Prints a random trace as CSV, for `csv:` in a plan. The "
                     "times between actions have a Weibull distribution.");
  set.Add("mtbf", &spec.mtbf,
          flags::Info("Options", "Mean time between actions, in seconds.")
              .Value("SECS")
              .Min(0.001)
              .Required());
  set.Add("shape", &spec.shape,
          flags::Info("Options",
                      "Shape of the distribution: 1 is a Poisson process, 0.7 "
                      "has the bursts of failures in large clusters.")
              .Min(0.1)
              .Max(100));
  set.Add("seconds", &seconds,
          flags::Info("Options", "Length of the trace.").Value("SECS").Min(0));
  set.Add("seed", &seed,
          flags::Info("Options", "The same seed makes the same trace.").Min(0));
  set.Add("action", &action,
          flags::Info("Options", "What happens.")
              .Choices(
                  {"kill", "preempt", "stop", "join", "leave", "kill_server"}));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  spec.kind = *experiment::ParseActionKind(action);
  std::fputs(
      experiment::TraceCsv(
          experiment::DrawActions(spec, static_cast<uint64_t>(seed), seconds))
          .c_str(),
      stdout);
  return 0;
}

int RunExperimentCommands(const std::vector<std::string>& args) {
  const std::vector<Command> commands = {
      {"run", "Run a plan, or the rest of it, and write the report.",
       RunExperimentRun},
      {"show", "Check a plan and list its runs.", RunExperimentShow},
      {"report", "Write the report of the runs so far.", RunExperimentReport},
      {"trace", "Print a random trace as CSV.", RunExperimentTrace},
  };
  return Dispatch("elasticdl experiment",
                  "Runs training jobs by a plan: what varies, who is killed, "
                  "how often. docs/experiments.md describes plans.",
                  commands, args);
}

}  // namespace elasticdl::cli
