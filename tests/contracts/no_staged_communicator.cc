// Without CUDA's headers no test gets here.
#include <utility>

#include "contracts/staged_communicator.h"

namespace elasticdl::collective {

absl::StatusOr<std::unique_ptr<Communicator>> StageOnDevice(
    std::unique_ptr<Communicator>) {
  return absl::UnimplementedError("built without NCCL");
}

void PrepareDevices(int, const std::string&) {}

absl::StatusOr<int> CountDevices() {
  return absl::UnimplementedError("built without CUDA");
}

}  // namespace elasticdl::collective
