#include "train_evaluate_predict.h"

#include <cstdio>

#include "cluster_exec.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/flags/job_flags.h"
#include "local/run_local_job.h"
#include "slurm/submit.h"

namespace elasticdl::cli {
namespace {

int RunJob(const std::string& name, const std::string& summary,
           flags::JobCommand command, const std::vector<std::string>& args) {
  flags::JobFlags flags;
  flags::FlagSet set("elasticdl " + name, summary);
  const int exit_code = flags::ParseJobFlags(command, args, &flags, &set);
  if (exit_code >= 0) return exit_code;
  if (flags.OnCluster()) {
    const absl::Status status = ExecCluster(name, {flags::PackedArgument(set)});
    std::fprintf(stderr, "elasticdl %s: %s\n", name.c_str(),
                 std::string(status.message()).c_str());
    return 1;
  }
  if (set.IsSet("slurm")) return SubmitToSlurm(name, flags, set);
  if (flags.state_dir.empty()) {
    const absl::Status status = set.Set("state_dir", flags::DefaultStateDir());
    if (!status.ok()) return set.Report(status);
  }
  return RunLocalJob(name, flags, set);
}

}  // namespace

int RunTrain(const std::vector<std::string>& args) {
  return RunJob("train",
                "Trains a model. Without --image the job runs on this "
                "machine, with a master and workers as processes.",
                flags::JobCommand::kTrain, args);
}

int RunEvaluate(const std::vector<std::string>& args) {
  return RunJob("evaluate", "Evaluates a checkpoint on validation data.",
                flags::JobCommand::kEvaluate, args);
}

int RunPredict(const std::vector<std::string>& args) {
  return RunJob("predict", "Writes the predictions of a checkpoint for data.",
                flags::JobCommand::kPredict, args);
}

}  // namespace elasticdl::cli
