#include "elasticdl/rendezvous/prepare_delta.h"

#include "absl/strings/str_cat.h"

namespace elasticdl::rendezvous {
namespace {

bool Same(const v1::Member& a, const v1::Member& b) {
  return a.worker_id() == b.worker_id() && a.host() == b.host();
}

}  // namespace

v1::Prepare ShortenPrepare(const v1::Prepare& base, const v1::Prepare& next) {
  // Everything but the members, which are most of it.
  v1::Prepare delta;
  delta.set_generation(next.generation());
  delta.set_urgent(next.urgent());
  delta.set_cold(next.cold());
  delta.set_restore_from(next.restore_from());
  delta.set_cold_step(next.cold_step());
  *delta.mutable_unsettled() = next.unsettled();
  delta.set_saved_step(next.saved_step());
  delta.set_last(next.last());
  delta.set_evaluating(next.evaluating());
  delta.set_base_generation(base.generation());
  // Survivors keep their order and joiners come last, so this is short.
  int kept = 0;
  for (int rank = 0; rank < base.members_size(); ++rank) {
    if (kept < next.members_size() &&
        Same(base.members(rank), next.members(kept))) {
      ++kept;
    } else {
      delta.add_removed_ranks(rank);
    }
  }
  for (; kept < next.members_size(); ++kept) {
    *delta.add_members() = next.members(kept);
  }
  return delta;
}

absl::Status CompletePrepare(const v1::Prepare& base, v1::Prepare& prepare) {
  if (prepare.base_generation() == 0) return absl::OkStatus();
  if (prepare.base_generation() != base.generation()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "world ", prepare.generation(), " is told by what has changed since ",
        prepare.base_generation(), ", but the last one told is ",
        base.generation()));
  }
  google::protobuf::RepeatedPtrField<v1::Member> members;
  members.Reserve(base.members_size() + prepare.members_size());
  int next_removed = 0;
  for (int rank = 0; rank < base.members_size(); ++rank) {
    if (next_removed < prepare.removed_ranks_size() &&
        prepare.removed_ranks(next_removed) == rank) {
      ++next_removed;
    } else {
      *members.Add() = base.members(rank);
    }
  }
  if (next_removed != prepare.removed_ranks_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "world ", prepare.generation(), ": rank ",
        prepare.removed_ranks(next_removed), " to remove is not in world ",
        base.generation(), ", or not in order"));
  }
  members.MergeFrom(prepare.members());
  prepare.mutable_members()->Swap(&members);
  prepare.clear_removed_ranks();
  prepare.clear_base_generation();
  return absl::OkStatus();
}

}  // namespace elasticdl::rendezvous
