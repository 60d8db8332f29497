// Synchronizes a new world: the member with the newest model is the donor, the
// others copy its state, or begin to catch up with it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/elastic/state_stream.h"

namespace elasticdl::elastic {

// The state of one member.
struct MemberState {
  // It has a trained model (or, in a cold world, is the one to start from).
  bool has_state = false;
  // The generation of the cold world that the model started from. A model of an
  // older lineage was given up in a rollback, whatever its step.
  int64_t lineage = 0;
  int64_t step = 0;
  // Same for all members: a digest of names, shapes and types. It guards
  // against members that run different models.
  uint64_t layout = 0;
  // Weights, optimizer state, buffers; same sizes on all members. Overwritten
  // with the donor's.
  std::vector<absl::Span<char>> spans;
  // Before the spans are read, and after they were written, if they are copies
  // of what is elsewhere (on a device). May be empty.
  std::function<absl::Status()> fetch;
  std::function<absl::Status()> store;
  // Before the spans are written: what was there, or a part of it, is worth
  // nothing from then on. May be empty.
  std::function<void()> overwrite;
  // Other data that the donor sends to all; any length.
  std::string meta;
  // As the donor: members that have nothing may catch up later, while the
  // others train.
  bool may_stream = false;
  // Its state can only be given and taken as a whole: it is on a device.
  bool whole_only = false;
  // The state as a ring of so many units, and without a state: which of them
  // this member has, of `lineage` and `step`.
  size_t units = 1;
  StateStream::Part part;
};

struct Levelled {
  int donor = 0;
  int64_t lineage = 0;
  int64_t step = 0;
  std::string meta;  // The donor's.
  // This member was not level and copied the donor's state.
  bool received = false;
  // Nothing was copied: these members are behind and have to catch up. Rank 0
  // is level and the donor.
  std::optional<StateStream> stream;
  // Bytes that were copied; 0 = all were level already.
  int64_t bytes = 0;
  // MemberState::whole_only of some member; all members know it.
  bool any_whole_only = false;
  // OK: every member has the state. Otherwise the world is broken, but this
  // member has the state described above.
  absl::Status world;
};

struct LevelOptions {
  // For one piece of the state, and for the end.
  absl::Duration timeout = absl::Minutes(2);
  // Until all members have arrived. Some may have a large state to load. Only
  // the master knows whether they make progress, and dissolves the world if
  // not.
  absl::Duration arrival_timeout = absl::InfiniteDuration();
  // Called with the bytes copied so far and the total.
  std::function<void(int64_t bytes, int64_t total)> moved;
};

// Collective: all members call it first in a new world. The donor is the member
// with the newest lineage, then the highest step, then the lowest rank. After
// an error the member's state is unchanged, unless it had none. ABORTED and
// DEADLINE_EXCEEDED: the world is broken. FAILED_PRECONDITION: a member has
// another model, or nobody has a state.
absl::StatusOr<Levelled> BringLevel(collective::Communicator& communicator,
                                    const MemberState& state,
                                    const LevelOptions& options);

}  // namespace elasticdl::elastic
