// elasticdl-master: the master of one job.
#include <signal.h>

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/jobdir.h"
#include "elasticdl/master.h"
#include "environment.h"
#include "job_flags.h"
#include "log_copier.h"
#include "master_options.h"
#include "program.h"
#include "signals.h"

namespace elasticdl::cli {
namespace {

absl::StatusOr<int> RunJob(const JobFlags& flags, const jobdir::JobDir& dir,
                           SignalWatcher& signals) {
  ELASTICDL_ASSIGN_OR_RETURN(
      master::MasterOptions options,
      MakeMasterOptions(flags, ExecutablePath(), Environment()));
  options.job_dir = dir.path();
  options.terminal = GetEnv("TERM");
  const std::string token_file =
      flags.token_file.empty() ? dir.TokenFile() : flags.token_file;
  if (flags.token_file.empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(options.token, dir.ReadToken());
  } else {
    ELASTICDL_ASSIGN_OR_RETURN(options.token, FindToken(token_file, "", ""));
  }
  options.worker_argv.push_back("--token_file=" + token_file);
  if (options.job.checkpoint_dir().empty() &&
      options.job.checkpoint_steps() > 0) {
    options.job.set_checkpoint_dir(JoinPath(dir.path(), "checkpoints"));
  }
  if (options.job.prediction_output_dir().empty()) {
    options.job.set_prediction_output_dir(JoinPath(dir.path(), "predictions"));
  }
  ELASTICDL_ASSIGN_OR_RETURN(const auto master,
                             master::Master::Create(std::move(options)));
  signals.Start([&](int signal) {
    master->Stop(signal == SIGINT ? "interrupted" : "terminated");
  });
  return master->Run();
}

// `copier` outlives the job, so that its last words are copied.
absl::StatusOr<int> RunMaster(const JobFlags& flags, SignalWatcher& signals,
                              std::unique_ptr<LogCopier>& copier) {
  // The client has this program write to the job's folder, from where the line
  // is copied; by hand, it goes to a terminal.
  ELASTICDL_RETURN_IF_ERROR(InitLogFromFlags(
      "master", flags.log_level, StartedByHand() ? flags.log_file_path : ""));
  const jobdir::JobDir dir(
      flags.state_dir.empty() ? DefaultStateDir() : flags.state_dir,
      flags.job_name);
  ELASTICDL_ASSIGN_OR_RETURN(const jobdir::JobLock lock,
                             LockJob(dir, flags.master_timeout > 0));
  if (!flags.log_file_path.empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(
        copier, LogCopier::Start(dir.LogsDir(), flags.log_file_path));
  }
  absl::StatusOr<int> exit_code = RunJob(flags, dir, signals);
  if (!exit_code.ok()) {
    master::RecordRefusedJob(dir.path(), flags.event_log, exit_code.status(),
                             MakeClusterOptions(flags));
  }
  return exit_code;
}

int Main(const std::vector<std::string>& args) {
  // Before any thread starts, so that all of them inherit the mask.
  SignalWatcher signals({SIGTERM, SIGINT});
  signal(SIGPIPE, SIG_IGN);
  JobFlags flags;
  FlagSet set("elasticdl-master", "The master of one job.");
  const int code = ParseJobFlags(JobCommand::kMaster, args, &flags, &set);
  if (code >= 0) return code;
  std::unique_ptr<LogCopier> copier;
  const absl::StatusOr<int> exit_code = RunMaster(flags, signals, copier);
  if (exit_code.ok()) return *exit_code;
  std::cerr << "elasticdl-master: " << exit_code.status().message() << "\n";
  return 1;
}

}  // namespace
}  // namespace elasticdl::cli

int main(int argc, char** argv) {
  return elasticdl::cli::Main({argv + 1, argv + argc});
}
