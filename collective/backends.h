// The backends, for the factory and for each other.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::collective {

// A world of one: nothing to do.
absl::StatusOr<std::unique_ptr<Connector>> BeginSingle(const WorldSpec& world);
// All members on one host.
absl::StatusOr<std::unique_ptr<Connector>> BeginShm(const WorldSpec& world);

}  // namespace elasticdl::collective
