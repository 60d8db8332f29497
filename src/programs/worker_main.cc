// elasticdl-worker: one worker of a job.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/life_sign.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/job_flags.h"
#include "elasticdl/fork_server.h"
#include "elasticdl/signals.h"
#include "elasticdl/worker.h"
#include "program.h"
#include "worker_options.h"

namespace elasticdl::programs {
namespace {

// Without an id until the master assigns one.
std::string LogTag(int64_t worker_id) {
  return worker_id < 0 ? "worker" : absl::StrCat("worker ", worker_id);
}

absl::StatusOr<int> Work(const flags::JobFlags& flags,
                         worker::WorkerOptions options,
                         process::SignalWatcher& signals) {
  ELASTICDL_RETURN_IF_ERROR(
      InitLogFromFlags(LogTag(options.worker_id), flags, flags.log_file_path));
  // The master may assign another id than the one that was asked for.
  options.named = [&flags](int64_t worker_id) {
    LogLevel level = LogLevel::kInfo;
    ParseLogLevel(flags.log_level, level);
    InitLog(LogTag(worker_id), level);
  };
  if (flags.show_devices) {
    for (const worker::DeviceFact& fact : worker::DescribeDevices(options)) {
      // Of the form of src/cli/doctor/finding.h.
      const nlohmann::ordered_json line = {
          {"state", fact.found ? "ok" : "note"},
          {"name", fact.name},
          {"detail", fact.detail},
          {"advice", fact.found ? "" : fact.advice}};
      std::cout << line.dump() << "\n";
    }
    return 0;
  }
  if (flags.compile_only) {
    ELASTICDL_ASSIGN_OR_RETURN(const std::string path,
                               worker::CompileModel(options));
    std::cout << path << "\n";
    return 0;
  }
  ELASTICDL_ASSIGN_OR_RETURN(
      options.token,
      FindToken(flags.token_file, flags.state_dir, options.master_addr));
  options.end_at_once = [](int code) {
    WithdrawLifeSign();
    std::fflush(nullptr);
    _exit(code);
  };
  const auto worker = worker::Worker::Create(options);
  signals.Start([&](int signal) { worker->Leave(); });
  const int code = worker->Run();
  // What MPI has registered for the end of a process waits for other ranks.
  if (worker->used_mpi()) options.end_at_once(code);
  return code;
}

int Main(const std::vector<std::string>& args) {
  worker::KeepFreedMemory();
  worker::AvoidAmx();
  RaiseFileLimit();
  // Before any thread starts, so that all of them inherit the mask.
  process::SignalWatcher signals({SIGTERM, SIGINT});
  flags::JobFlags flags;
  flags::FlagSet set("elasticdl-worker", "One worker of a job.");
  const int code =
      ParseJobFlags(flags::JobCommand::kWorker, args, &flags, &set);
  if (code >= 0) return code;
  const auto exit_code = Work(flags, MakeWorkerOptions(flags, set), signals);
  if (exit_code.ok()) return *exit_code;
  std::cerr << "elasticdl-worker: " << exit_code.status().message() << "\n";
  return 1;
}

}  // namespace
}  // namespace elasticdl::programs

int main(int argc, char** argv) {
  int fd = -1;
  if (argc > 1 && elasticdl::process::IsForkServer(argv[1], &fd)) {
    return elasticdl::process::ServeForks(fd, argv, elasticdl::programs::Main);
  }
  // Workers that a local master forks need none: it has their life signs.
  elasticdl::programs::StartSentinelUnlessSlurm();
  return elasticdl::programs::Main({argv + 1, argv + argc});
}
