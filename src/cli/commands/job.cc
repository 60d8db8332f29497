#include "commands/job.h"

#include <cstdio>

#include "commands/cluster_exec.h"
#include "commands/local_job.h"
#include "environment.h"
#include "job_flags.h"

namespace elasticdl::cli {
namespace {

int RunJob(const std::string& name, const std::string& summary,
           JobCommand command, const std::vector<std::string>& args) {
  JobFlags flags;
  FlagSet set("elasticdl " + name, summary);
  const int exit_code = ParseJobFlags(command, args, &flags, &set);
  if (exit_code >= 0) return exit_code;
  if (flags.OnCluster()) {
    // As they were typed: ToArgs leaves out what only the client acts on (the
    // making of an image).
    const absl::Status status = ExecCluster(name, args);
    std::fprintf(stderr, "elasticdl %s: %s\n", name.c_str(),
                 std::string(status.message()).c_str());
    return 1;
  }
  if (flags.state_dir.empty()) {
    const absl::Status status = set.Set("state_dir", DefaultStateDir());
    if (!status.ok()) return set.Report(status);
  }
  return RunLocalJob(name, flags, set);
}

}  // namespace

int RunTrain(const std::vector<std::string>& args) {
  return RunJob("train",
                "Trains a model. Without --image_name the job runs on this "
                "machine, with a master and workers as processes.",
                JobCommand::kTrain, args);
}

int RunEvaluate(const std::vector<std::string>& args) {
  return RunJob("evaluate", "Evaluates a checkpoint on validation data.",
                JobCommand::kEvaluate, args);
}

int RunPredict(const std::vector<std::string>& args) {
  return RunJob("predict", "Writes the predictions of a checkpoint for data.",
                JobCommand::kPredict, args);
}

}  // namespace elasticdl::cli
