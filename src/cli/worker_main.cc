// elasticdl-worker: one worker of a job.
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/fork_server.h"
#include "elasticdl/worker.h"
#include "environment.h"
#include "job_flags.h"
#include "program.h"
#include "signals.h"

namespace elasticdl::cli {
namespace {

int Main(const std::vector<std::string>& args) {
  worker::KeepFreedMemory();
  // Before any thread starts, so that all of them inherit the mask.
  SignalWatcher signals({SIGTERM, SIGINT});
  JobFlags flags;
  FlagSet set("elasticdl-worker", "One worker of a job.");
  const int code = ParseJobFlags(JobCommand::kWorker, args, &flags, &set);
  if (code >= 0) return code;
  worker::WorkerOptions options;
  options.master_addr = flags.master_addr;
  options.worker_id = flags.worker_id;
  ReadWorkerEnvironment(set, &options.master_addr, &options.worker_id);
  const absl::Status log =
      InitLogFromFlags(absl::StrCat("worker ", options.worker_id),
                       flags.log_level, flags.log_file_path);
  if (!log.ok()) {
    std::cerr << "elasticdl-worker: " << log.message() << "\n";
    return 1;
  }
  options.model_zoo = flags.model_zoo;
  options.model_def = flags.model_def;
  options.model_params = flags.model_params;
  options.num_threads = static_cast<int>(flags.num_threads);
  options.executable = ExecutablePath();
  options.model_cache_dir = ModelCacheDir();
  if (flags.compile_only) {
    const auto path = worker::CompileModel(options);
    if (!path.ok()) {
      std::cerr << "elasticdl-worker: " << path.status().message() << "\n";
      return 1;
    }
    std::cout << *path << "\n";
    return 0;
  }
  const auto token =
      FindToken(flags.token_file, flags.state_dir, options.master_addr);
  if (!token.ok()) {
    std::cerr << "elasticdl-worker: " << token.status().message() << "\n";
    return 1;
  }
  options.token = *token;
  const auto worker = worker::Worker::Create(options);
  signals.Start([&](int signal) { worker->Leave(); });
  return worker->Run();
}

}  // namespace
}  // namespace elasticdl::cli

int main(int argc, char** argv) {
  int fd = -1;
  if (argc > 1 && elasticdl::process::IsForkServer(argv[1], &fd)) {
    return elasticdl::process::ServeForks(fd, argv, elasticdl::cli::Main);
  }
  return elasticdl::cli::Main({argv + 1, argv + argc});
}
