// Chooses the backend of a world.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backends.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {

bool IsBackend(const std::string& name) {
  return name == "auto" || name == "shm" || name == "tcp" || name == "gloo" ||
         name == "mpi" || name == "nccl";
}

namespace {

// The address at which other members reach this one.
std::string AddressOf(const BackendOptions& options, bool one_host) {
  if (!options.address.empty()) return options.address;
  return one_host ? "127.0.0.1" : OwnAddress(options.master_address);
}

}  // namespace

absl::StatusOr<Backend> ChooseBackend(const WorldSpec& world,
                                      const std::string& name) {
  if (!IsBackend(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown collective backend \"", name,
                     "\" (auto, shm, tcp, gloo, mpi, nccl)"));
  }
  if (world.rank < 0 || world.rank >= world.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", world.rank, " in a world of ", world.size(), " members"));
  }
  if (world.size() == 1) return Backend::kSingle;
  std::map<std::string, int> hosts;
  int most = 0;  // on one host
  for (const std::string& host : world.hosts) {
    most = std::max(most, ++hosts[host]);
  }
  if (name == "gloo") return Backend::kGloo;
  if (name == "mpi") return Backend::kMpi;
  if (name == "nccl") return Backend::kNccl;
  if (name == "shm" && hosts.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("backend shm needs all members on one host, these are on ",
                     hosts.size()));
  }
  if (name == "shm") return Backend::kShm;
  // No two members share a host, or more do than shared memory supports.
  if (name == "tcp" || most == 1 || most > kMaxShmMembers) return Backend::kTcp;
  return hosts.size() == 1 ? Backend::kShm : Backend::kHierarchical;
}

absl::StatusOr<std::unique_ptr<Connector>> BeginConnect(
    const WorldSpec& world, const BackendOptions& options) {
  ELASTICDL_ASSIGN_OR_RETURN(const Backend backend,
                             ChooseBackend(world, options.backend));
  if (backend == Backend::kSingle) return BeginSingle(world);
  if (backend == Backend::kShm) return BeginShm(world);
  const bool one_host =
      std::set<std::string>(world.hosts.begin(), world.hosts.end()).size() == 1;
  const std::string address = AddressOf(options, one_host);
  LogDebug("generation ", world.generation, ": others reach this member at ",
           address);
  if (backend == Backend::kMpi || backend == Backend::kNccl) {
    BackendOptions other = options;
    other.backend = "auto";
    ELASTICDL_ASSIGN_OR_RETURN(std::unique_ptr<Connector> connector,
                               BeginConnect(world, other));
    return backend == Backend::kMpi
               ? BeginMpi(world, address, options.mpi, std::move(connector))
               : BeginNccl(world, address, options.nccl, std::move(connector));
  }
  if (backend == Backend::kGloo) return BeginGloo(world, address);
  if (backend == Backend::kTcp) return BeginTcp(world, address);
  return BeginHierarchical(world, address);
}

}  // namespace elasticdl::collective
