// Layout of an offer: "EDLC1" | generation | rank | kind | payload | MAC of
// everything before it. Strings have a 32-bit length.
#include "core/offer.h"

#include <openssl/crypto.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/blame.h"
#include "elasticdl/common/secret.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

constexpr absl::string_view kMagic = "EDLC1";

}  // namespace

void AppendText(absl::string_view text, std::string& out) {
  AppendRaw(static_cast<uint32_t>(text.size()), out);
  out.append(text.data(), text.size());
}

bool TakeBytes(absl::string_view& in, void* out, size_t count) {
  if (in.size() < count) return false;
  std::memcpy(out, in.data(), count);
  in.remove_prefix(count);
  return true;
}

bool TakeText(absl::string_view& in, std::string& text) {
  uint32_t size = 0;
  if (!TakeRaw(in, size) || in.size() < size) return false;
  text = std::string(in.substr(0, size));
  in.remove_prefix(size);
  return true;
}

std::string SealOffer(const WorldSpec& world, absl::string_view kind,
                      absl::string_view payload) {
  std::string offer(kMagic);
  AppendRaw(world.generation, offer);
  AppendRaw(static_cast<int32_t>(world.rank), offer);
  AppendText(kind, offer);
  AppendText(payload, offer);
  offer += Mac(world.secret, offer);
  return offer;
}

namespace {

absl::StatusOr<std::string> Open(const WorldSpec& world, int rank,
                                 absl::string_view kind,
                                 absl::string_view offer) {
  const std::string whose = absl::StrCat("offer of rank ", rank);
  int64_t generation = 0;
  int32_t its_rank = 0;
  std::string its_kind;
  std::string payload;
  absl::string_view rest = offer;
  if (!absl::StartsWith(rest, kMagic)) {
    return absl::InvalidArgumentError(
        absl::StrCat(whose, " is not an offer (", offer.size(), " bytes)"));
  }
  rest.remove_prefix(kMagic.size());
  if (!TakeRaw(rest, generation) || !TakeRaw(rest, its_rank) ||
      !TakeText(rest, its_kind) || !TakeText(rest, payload) ||
      rest.size() != kMacBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(whose, " is cut or damaged (", offer.size(), " bytes)"));
  }
  const std::string mac =
      Mac(world.secret, offer.substr(0, offer.size() - kMacBytes));
  if (CRYPTO_memcmp(mac.data(), rest.data(), kMacBytes) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(whose, " was not made with this job's secret"));
  }
  if (generation != world.generation) {
    return absl::FailedPreconditionError(
        absl::StrCat(whose, " is for generation ", generation,
                     ", this world is ", world.generation));
  }
  if (its_rank != rank) {
    return absl::InvalidArgumentError(
        absl::StrCat(whose, " was made by rank ", its_rank));
  }
  if (its_kind != kind) {
    return absl::InvalidArgumentError(absl::StrCat(
        whose, " is for backend ", its_kind, ", this member uses ", kind));
  }
  return payload;
}

}  // namespace

absl::StatusOr<std::string> OpenOffer(const WorldSpec& world, int rank,
                                      absl::string_view kind,
                                      absl::string_view offer) {
  absl::StatusOr<std::string> payload = Open(world, rank, kind, offer);
  if (!payload.ok()) return Blame(rank, payload.status());
  return payload;
}

absl::Status CheckNumberOfOffers(const WorldSpec& world,
                                 const std::vector<std::string>& offers) {
  if (offers.size() == world.hosts.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(offers.size(), " offers for ", world.size(), " members"));
}

absl::StatusOr<std::vector<std::string>> OpenOffers(
    const WorldSpec& world, absl::string_view kind,
    const std::vector<std::string>& offers) {
  ELASTICDL_RETURN_IF_ERROR(CheckNumberOfOffers(world, offers));
  std::vector<std::string> payloads;
  for (int rank = 0; rank < world.size(); ++rank) {
    ELASTICDL_ASSIGN_OR_RETURN(std::string payload,
                               OpenOffer(world, rank, kind, offers[rank]));
    payloads.push_back(std::move(payload));
  }
  return payloads;
}

absl::Status DamagedOffer(int rank) {
  return Blame(rank, absl::InvalidArgumentError(
                         absl::StrCat("offer of rank ", rank, " is damaged")));
}

}  // namespace elasticdl::collective
