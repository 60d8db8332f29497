// elasticdl-ps: one parameter server of a job.
#include <signal.h>

#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/job_flags.h"
#include "elasticdl/signals.h"
#include "program.h"
#include "ps_options.h"
#include "ps_process.h"

namespace elasticdl::programs {
namespace {

absl::StatusOr<int> Serve(const flags::JobFlags& flags,
                          const flags::FlagSet& set,
                          process::SignalWatcher& signals) {
  ELASTICDL_RETURN_IF_ERROR(InitLogFromFlags(absl::StrCat("ps ", flags.ps_id),
                                             flags, flags.log_file_path));
  ELASTICDL_ASSIGN_OR_RETURN(const PsOptions options,
                             MakePsOptions(flags, set));
  PsProcess server(options);
  signals.Start([&](int signal) { server.Stop(); });
  const int code = server.Run();
  signals.Stop();
  return code;
}

int Main(const std::vector<std::string>& args) {
  RaiseFileLimit();
  // Before any thread starts, so that all of them inherit the mask.
  process::SignalWatcher signals({SIGTERM, SIGINT});
  signal(SIGPIPE, SIG_IGN);
  flags::JobFlags flags;
  flags::FlagSet set("elasticdl-ps", "One parameter server of a job.");
  const int code =
      flags::ParseJobFlags(flags::JobCommand::kPs, args, &flags, &set);
  if (code >= 0) return code;
  const absl::StatusOr<int> exit_code = Serve(flags, set, signals);
  if (exit_code.ok()) return *exit_code;
  std::cerr << "elasticdl-ps: " << exit_code.status().message() << "\n";
  return 1;
}

}  // namespace
}  // namespace elasticdl::programs

int main(int argc, char** argv) {
  elasticdl::programs::StartSentinelUnlessSlurm();
  return elasticdl::programs::Main({argv + 1, argv + argc});
}
