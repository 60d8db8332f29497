// Brings the members of a new world to the same model: the most advanced one is
// the donor, the others take its state over.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::elastic {

// What one member brings.
struct MemberState {
  // It has a trained model (or, in a cold world, is the one to start from).
  bool has_state = false;
  // The cold world that the model descends from (its generation). A model of an
  // older one is of a history that the job has given up, whatever its step.
  int64_t lineage = 0;
  int64_t step = 0;
  // Same for all members: a digest of names, shapes and types. It guards
  // against members that run different models.
  uint64_t layout = 0;
  // Weights, optimizer state, buffers; same sizes on all members. Written when
  // the state is taken over.
  std::vector<absl::Span<char>> spans;
  // What else the donor tells everybody; any length.
  std::string meta;
};

struct Levelled {
  int donor = 0;
  int64_t lineage = 0;
  int64_t step = 0;
  std::string meta;  // The donor's.
  // This member was not level and took the donor's state over.
  bool received = false;
  // Bytes that were sent to others; 0 = all were level already.
  int64_t bytes = 0;
  // OK: every member has the state. Otherwise the world is broken, but what is
  // said above holds for this member.
  absl::Status world;
};

struct LevelOptions {
  // For one piece of the state, and for the end.
  absl::Duration timeout = absl::Minutes(2);
  // Until all members are here. Some may have a large state to load, and only
  // the master hears whether they get on with it: it breaks off what is in
  // vain.
  absl::Duration arrival_timeout = absl::InfiniteDuration();
  // So many bytes of so many have gone from the donor to the others.
  std::function<void(int64_t bytes, int64_t total)> moved;
};

// Collective: all members call it first in a new world. The donor is the member
// with the newest lineage and in it the highest step, among those that have a
// state; the lowest rank if there are several. After an error the member's
// state is what it was. ABORTED and DEADLINE_EXCEEDED: the world is broken.
// FAILED_PRECONDITION: a member has another model, or nobody has a state.
absl::StatusOr<Levelled> BringLevel(collective::Communicator& communicator,
                                    const MemberState& state,
                                    const LevelOptions& options);

}  // namespace elasticdl::elastic
