// The backends, for the factory and for each other.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::collective {

// A chunk of shared memory has a cache line for each member on the host.
inline constexpr int kMaxShmMembers = 256;

enum class Backend { kSingle, kShm, kTcp, kGloo, kMpi, kNccl, kHierarchical };

// The backend that `name` (auto, shm, tcp, gloo, mpi, nccl) selects for this
// world. Pure, and the same on all members. INVALID_ARGUMENT if the backend
// cannot connect this world.
absl::StatusOr<Backend> ChooseBackend(const WorldSpec& world,
                                      const std::string& name);

// A world of one member.
absl::StatusOr<std::unique_ptr<Connector>> BeginSingle(const WorldSpec& world);
// All members on one host.
absl::StatusOr<std::unique_ptr<Connector>> BeginShm(const WorldSpec& world);
// Members anywhere; this one listens on `host`, a name or an address.
absl::StatusOr<std::unique_ptr<Connector>> BeginTcp(const WorldSpec& world,
                                                    const std::string& host);

// As BeginTcp, but the data goes through Gloo. UNIMPLEMENTED when this program
// was built without it.
absl::StatusOr<std::unique_ptr<Connector>> BeginGloo(const WorldSpec& world,
                                                     const std::string& host);

// Over MPI if all members are in one universe, else what `other` makes. This
// member has no MPI if `universe` is null.
absl::StatusOr<std::unique_ptr<Connector>> BeginMpi(
    const WorldSpec& world, const std::string& host,
    std::shared_ptr<MpiUniverse> universe, std::unique_ptr<Connector> other);

// The world that `other` makes, with NCCL in addition if every member has its
// own GPU. This member has none if `runtime` is null.
absl::StatusOr<std::unique_ptr<Connector>> BeginNccl(
    const WorldSpec& world, const std::string& host,
    std::shared_ptr<NcclRuntime> runtime, std::unique_ptr<Connector> other);

// Shared memory on each host, sockets between one leader per host.
absl::StatusOr<std::unique_ptr<Connector>> BeginHierarchical(
    const WorldSpec& world, const std::string& host);

}  // namespace elasticdl::collective
