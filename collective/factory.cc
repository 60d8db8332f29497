// Chooses the backend of a world.
#include <set>
#include <string>
#include <utility>

#include "core/backends.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

// The address at which other members reach this one.
std::string AddressOf(const BackendOptions& options, bool one_host) {
  if (!options.address.empty()) return options.address;
  return one_host ? "127.0.0.1" : OwnAddress(options.master_address);
}

}  // namespace

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
    // The member that stood in the way of MPI or NCCL may be the one that dies.
    WorldSpec stand_in = world;
    stand_in.may_shrink = false;
    ELASTICDL_ASSIGN_OR_RETURN(std::unique_ptr<Connector> connector,
                               BeginConnect(stand_in, other));
    return backend == Backend::kMpi
               ? BeginMpi(world, address, options.mpi, std::move(connector))
               : BeginNccl(world, address, options.nccl, std::move(connector));
  }
  if (backend == Backend::kGloo) return BeginGloo(world, address);
  if (backend == Backend::kTcp) return BeginTcp(world, address);
  return BeginHierarchical(world, address);
}

}  // namespace elasticdl::collective
