// Reads a plan and checks what only programs know: flags, peers.
#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/experiment/cluster_job.h"
#include "elasticdl/flags/job_flags.h"
#include "experiment/experiment.h"
#include "experiment/live_job.h"

namespace elasticdl::cli {
namespace {

using experiment::Plan;
using experiment::Run;

// What an experiment gives its jobs itself.
constexpr const char* kOwnFlags[] = {"job_name",     "state_dir", "event_log",
                                     "ledger_audit", "detach",    "yaml"};

// The line of the flag that a message names; 1 if it names none of the plan's.
int LineOf(const Plan& plan, absl::string_view message) {
  int line = 1;
  size_t first = std::string::npos;
  for (const auto& [flag, at] : plan.lines) {
    const size_t found = message.find(absl::StrCat("--", flag));
    if (found >= first) continue;
    first = found;
    line = at;
  }
  return line;
}

absl::Status Refuse(const Plan& plan, int line, absl::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat(plan.file, ":", line, ": ", message));
}

absl::Status CheckFlags(const Plan& plan, const experiment::Settings& flags) {
  for (const char* own : kOwnFlags) {
    if (flags.count(own) == 0) continue;
    return Refuse(plan, plan.lines.at(own),
                  absl::StrCat("--", own, " is set by the experiment"));
  }
  LiveJobOptions options;
  options.flags = flags;
  options.peer = experiment::kElasticdl;
  options.name = "experiment";
  const auto workers = flags.find("num_workers");
  std::vector<std::string> args = JobCommandLine(options);
  args.erase(args.begin(), args.begin() + 2);
  if (workers != flags.end()) {
    args.push_back(absl::StrCat("--num_workers=", workers->second));
  }
  flags::JobFlags parsed;
  flags::FlagSet set("elasticdl train", "");
  const absl::Status status =
      flags::CheckJobFlags(flags::JobCommand::kTrain, args, &parsed, &set);
  if (!status.ok()) {
    return Refuse(plan, LineOf(plan, status.message()), status.message());
  }
  if (parsed.OnCluster() != experiment::OnCluster(flags)) {
    return Refuse(plan, LineOf(plan, "--config"),
                  "a plan for a cluster has --image itself, not in --config");
  }
  return absl::OkStatus();
}

// The line of what a cluster cannot do.
absl::Status CheckPlace(const Plan& plan, const Run& run) {
  if (!experiment::OnCluster(run.flags)) return absl::OkStatus();
  const absl::Status status = experiment::CheckOnCluster(plan, run);
  if (status.ok()) return absl::OkStatus();
  return Refuse(
      plan,
      LineOf(plan, run.peer == experiment::kElasticdl ? "--image" : "--peer"),
      status.message());
}

// A job has flags of its own; it must still run where the others run.
absl::Status CheckSharedJob(const Plan& plan, const Run& run,
                            const experiment::SharedJob& job) {
  experiment::Settings flags = run.flags;
  for (const auto& [name, value] : job.flags) flags[name] = value;
  if (experiment::OnCluster(flags) != experiment::OnCluster(run.flags)) {
    return Refuse(plan, LineOf(plan, "--image"),
                  absl::StrCat("job ", job.name,
                               " would run elsewhere than the others: set "
                               "--image for all of them"));
  }
  return CheckFlags(plan, flags);
}

absl::Status CheckPeer(const Plan& plan, const Run& run) {
  if (run.peer == experiment::kElasticdl) return absl::OkStatus();
  const auto line = plan.lines.find("peer");
  const int at = line == plan.lines.end() ? 1 : line->second;
  const auto model = run.flags.find("model_def");
  const std::string name = model == run.flags.end() ? "" : model->second;
  if (!absl::StartsWith(name, "mnist.mlp.") &&
      !absl::StartsWith(name, "mnist.mnist_functional_api.")) {
    return Refuse(plan, at,
                  absl::StrCat("peer ", run.peer, " has no model ", name,
                               "; it has mnist.mlp.custom_model and "
                               "mnist.mnist_functional_api.custom_model"));
  }
  if (plan.seconds <= 0) {
    return Refuse(plan, at, "a peer trains until `seconds` are over");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Plan> LoadPlan(const std::string& path) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ELASTICDL_ASSIGN_OR_RETURN(Plan plan,
                             experiment::ParsePlan(path, text, ReadFile));
  std::set<experiment::Settings> seen;
  for (const Run& run : experiment::ListRuns(plan)) {
    ELASTICDL_RETURN_IF_ERROR(CheckPlace(plan, run));
    ELASTICDL_RETURN_IF_ERROR(CheckPeer(plan, run));
    if (!seen.insert(run.flags).second) continue;
    ELASTICDL_RETURN_IF_ERROR(CheckFlags(plan, run.flags));
    for (const experiment::SharedJob& job : plan.sharing.jobs) {
      ELASTICDL_RETURN_IF_ERROR(CheckSharedJob(plan, run, job));
    }
  }
  return plan;
}

}  // namespace elasticdl::cli
