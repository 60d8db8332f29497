#include "nccl/offers.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/offer.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

constexpr char kKind[] = "nccl";

}  // namespace

std::string SealNcclOffer(const WorldSpec& world, const NcclOffer& offer) {
  std::string payload;
  AppendAddress(offer.address, payload);
  AppendRaw(offer.nccl_version, payload);
  AppendText(offer.gpu, payload);
  AppendText(offer.other, payload);
  return SealOffer(world, kKind, payload);
}

absl::StatusOr<std::vector<NcclOffer>> OpenNcclOffers(
    const WorldSpec& world, const std::vector<std::string>& offers) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> payloads,
                             OpenOffers(world, kKind, offers));
  std::vector<NcclOffer> opened(payloads.size());
  for (int rank = 0; rank < world.size(); ++rank) {
    absl::string_view rest = payloads[rank];
    NcclOffer& offer = opened[rank];
    if (!TakeAddress(rest, offer.address) ||
        !TakeRaw(rest, offer.nccl_version) || !TakeText(rest, offer.gpu) ||
        !TakeText(rest, offer.other) || !rest.empty()) {
      return DamagedOffer(rank);
    }
  }
  return opened;
}

absl::Status CheckNcclOffers(const WorldSpec& world,
                             const std::vector<NcclOffer>& offers) {
  // Host and GPU to rank.
  std::map<std::pair<std::string, std::string>, int> gpus;
  for (int rank = 0; rank < world.size(); ++rank) {
    const NcclOffer& offer = offers[rank];
    if (offer.nccl_version == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " has no NCCL"));
    }
    if (offer.nccl_version != offers[0].nccl_version) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " has NCCL ", offer.nccl_version,
                       ", rank 0 has ", offers[0].nccl_version));
    }
    const auto [it, is_new] =
        gpus.insert({{world.hosts[rank], offer.gpu}, rank});
    if (!is_new) {
      return absl::FailedPreconditionError(
          absl::StrCat("ranks ", it->second, " and ", rank,
                       " share one GPU, which NCCL refuses"));
    }
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::collective
