// elasticdl-master: the master of one job.
#include <signal.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "elasticdl/flags/job_flags.h"
#include "elasticdl/signals.h"
#include "log_copier.h"
#include "master_job.h"
#include "master_options.h"
#include "program.h"

namespace elasticdl::programs {
namespace {

int Main(const std::vector<std::string>& args) {
  RaiseFileLimit();
  // Before any thread starts, so that all of them inherit the mask.
  process::SignalWatcher signals({SIGTERM, SIGINT});
  signal(SIGPIPE, SIG_IGN);
  flags::JobFlags flags;
  flags::FlagSet set("elasticdl-master", "The master of one job.");
  const int code =
      flags::ParseJobFlags(flags::JobCommand::kMaster, args, &flags, &set);
  if (code >= 0) return code;
  std::unique_ptr<LogCopier> copier;
  const absl::StatusOr<int> exit_code =
      RunMaster(flags, ShownFlags(set), signals, copier);
  if (exit_code.ok()) return *exit_code;
  std::cerr << "elasticdl-master: " << exit_code.status().message() << "\n";
  return 1;
}

}  // namespace
}  // namespace elasticdl::programs

int main(int argc, char** argv) {
  return elasticdl::programs::Main({argv + 1, argv + argc});
}
