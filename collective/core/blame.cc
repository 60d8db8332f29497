#include "core/blame.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace elasticdl::collective {
namespace {

// Payloads are named like types of messages.
constexpr char kBlamedRank[] = "elasticdl.collective.BlamedRank";

}  // namespace

absl::Status Blame(int rank, absl::Status status) {
  if (rank < 0) {
    status.ErasePayload(kBlamedRank);
  } else {
    status.SetPayload(kBlamedRank, absl::Cord(absl::StrCat(rank)));
  }
  return status;
}

int BlamedRank(const absl::Status& status) {
  const auto payload = status.GetPayload(kBlamedRank);
  int rank = -1;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &rank)) {
    return -1;
  }
  return rank;
}

absl::Status AsAborted(const absl::Status& why) {
  return Blame(BlamedRank(why), absl::AbortedError(why.message()));
}

}  // namespace elasticdl::collective
