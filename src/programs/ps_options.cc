#include "ps_options.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/flags/grammar.h"
#include "elasticdl/jobdir.h"
#include "program.h"

namespace elasticdl::programs {
namespace {

absl::StatusOr<std::string> FindLogRoot(const flags::JobFlags& flags,
                                        const std::string& master_addr) {
  if (!flags.ps_log.empty()) return flags.ps_log;
  const std::string root =
      flags.state_dir.empty() ? flags::DefaultStateDir() : flags.state_dir;
  const auto job = jobdir::FindByAddress(root, master_addr);
  if (job.ok()) return job->PsLogDir();
  return absl::NotFoundError(
      absl::StrCat(job.status().message(),
                   "; a server whose master is elsewhere needs --ps_log, a "
                   "folder for its log"));
}

}  // namespace

absl::StatusOr<PsOptions> MakePsOptions(const flags::JobFlags& flags,
                                        const flags::FlagSet& set) {
  PsOptions options;
  options.server = static_cast<int>(flags.ps_id);
  options.master_addr = flags.master_addr;
  ReadMasterAddress(set, &options.master_addr);
  options.port = static_cast<uint16_t>(flags.port);
  options.host = flags.worker_address.empty()
                     ? flags::GetEnv("ELASTICDL_WORKER_ADDRESS")
                     : flags.worker_address;
  if (options.host.empty()) {
    options.host = collective::OwnAddress(options.master_addr);
  }
  ELASTICDL_ASSIGN_OR_RETURN(
      options.token,
      FindToken(flags.token_file, flags.state_dir, options.master_addr));
  ELASTICDL_ASSIGN_OR_RETURN(options.log_root,
                             FindLogRoot(flags, options.master_addr));
  ELASTICDL_ASSIGN_OR_RETURN(const int64_t limit,
                             flags::ParseMemorySize(flags.ps_memory_limit));
  options.memory_limit = static_cast<size_t>(limit);
  options.audit = flags.ps_audit;
  options.snapshot_bytes = flags.ps_snapshot_bytes;
  return options;
}

}  // namespace elasticdl::programs
