// Chooses the backend of a world.
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
  return name == "auto" || name == "shm" || name == "gloo";
}

absl::StatusOr<std::unique_ptr<Connector>> BeginConnect(
    const WorldSpec& world, const BackendOptions& options) {
  if (!IsBackend(options.backend)) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown collective backend \"", options.backend,
                     "\" (auto, shm, gloo)"));
  }
  if (world.rank < 0 || world.rank >= world.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", world.rank, " in a world of ", world.size(), " members"));
  }
  if (world.size() == 1) return BeginSingle(world);
  const std::set<std::string> hosts(world.hosts.begin(), world.hosts.end());
  if (hosts.size() == 1 && options.backend != "gloo") return BeginShm(world);
  if (options.backend == "shm") {
    return absl::InvalidArgumentError(
        absl::StrCat("backend shm needs all members on one host, these are on ",
                     hosts.size()));
  }
  return absl::UnimplementedError("the gloo backend is not there yet");
}

}  // namespace elasticdl::collective
