// Chooses the backend of a world.
#include <limits.h>
#include <unistd.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "backends.h"
#include "elasticdl/common/check.h"

namespace elasticdl::collective {

size_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return 4;
    case DataType::kBFloat16:
    case DataType::kFloat16:
      return 2;
    case DataType::kInt64:
      return 8;
  }
  ELASTICDL_CHECK(false);
}

bool IsBackend(const std::string& name) {
  return name == "auto" || name == "shm" || name == "tcp" || name == "gloo";
}

namespace {

// Where others reach this member.
std::string AddressOf(const BackendOptions& options, bool one_host) {
  if (!options.address.empty()) return options.address;
  if (one_host) return "127.0.0.1";
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, HOST_NAME_MAX);
  return name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connector>> BeginConnect(
    const WorldSpec& world, const BackendOptions& options) {
  if (!IsBackend(options.backend)) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown collective backend \"", options.backend,
                     "\" (auto, shm, tcp, gloo)"));
  }
  if (world.rank < 0 || world.rank >= world.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", world.rank, " in a world of ", world.size(), " members"));
  }
  if (world.size() == 1) return BeginSingle(world);
  const std::set<std::string> hosts(world.hosts.begin(), world.hosts.end());
  const bool one_host = hosts.size() == 1;
  if (options.backend == "shm" && !one_host) {
    return absl::InvalidArgumentError(
        absl::StrCat("backend shm needs all members on one host, these are on ",
                     hosts.size()));
  }
  const bool gloo = options.backend == "gloo";
  const bool sockets_only = options.backend == "tcp" || gloo;
  if (one_host && !sockets_only) return BeginShm(world);
  const std::string address = AddressOf(options, one_host);
  if (gloo) return BeginGloo(world, address);
  const bool all_alone = static_cast<int>(hosts.size()) == world.size();
  if (sockets_only || all_alone) return BeginTcp(world, address);
  return BeginHierarchical(world, address);
}

}  // namespace elasticdl::collective
