// What members of a world tell each other about NCCL. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/collective/communicator.h"
#include "tcp/address.h"

namespace elasticdl::collective {

struct NcclOffer {
  TcpAddress address;
  // 0: this member has no NCCL.
  int32_t nccl_version = 0;
  // On its host.
  std::string gpu;
  // Of the communicator for memory of the host.
  std::string other;
};

std::string SealNcclOffer(const WorldSpec& world, const NcclOffer& offer);
// By rank. Errors as of OpenOffers.
absl::StatusOr<std::vector<NcclOffer>> OpenNcclOffers(
    const WorldSpec& world, const std::vector<std::string>& offers);

// OK if these members can use NCCL together; FAILED_PRECONDITION with the
// reason if not. The same on all members.
absl::Status CheckNcclOffers(const WorldSpec& world,
                             const std::vector<NcclOffer>& offers);

}  // namespace elasticdl::collective
