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
constexpr char kNcclFailure[] = "elasticdl.collective.NcclFailure";
constexpr char kDataLeftAlone[] = "elasticdl.collective.DataLeftAlone";

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

absl::Status MarkNcclFailure(absl::Status status) {
  status.SetPayload(kNcclFailure, absl::Cord());
  return status;
}

bool IsNcclFailure(const absl::Status& status) {
  return status.GetPayload(kNcclFailure).has_value();
}

absl::Status MarkData(bool left_alone, absl::Status status) {
  if (status.ok()) return status;
  if (left_alone) {
    status.SetPayload(kDataLeftAlone, absl::Cord());
  } else {
    status.ErasePayload(kDataLeftAlone);
  }
  return status;
}

bool LeftDataAlone(const absl::Status& status) {
  return status.GetPayload(kDataLeftAlone).has_value();
}

absl::Status AsAborted(const absl::Status& why) {
  absl::Status aborted =
      Blame(BlamedRank(why), absl::AbortedError(why.message()));
  return IsNcclFailure(why) ? MarkNcclFailure(aborted) : aborted;
}

}  // namespace elasticdl::collective
