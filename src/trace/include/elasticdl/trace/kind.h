// The kinds of work on which a worker spends its time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace elasticdl::trace {

// The numbers go over the wire (v1.TraceSpans): append only.
enum class Kind : int32_t {
  // ---- the training thread; always in exactly one of these ----
  // Nothing to do: no world yet, an evaluation, a pause, the end.
  kIdle = 0,
  // The next records have not been read.
  kDataWait = 1,
  // They have, but the model's feed is not done with them.
  kFeedWait = 2,
  kForward = 3,
  // On a device, also the wait for all of this worker's own work there.
  kBackward = 4,
  // The part of the gradient exchange that is not overlapped with backward: the
  // rest of the all-reduce and the wait for stragglers, or for parameter
  // servers.
  kCommunication = 5,
  kOptimizer = 6,
  // Enters a world and becomes level with its members.
  kWorld = 7,
  // Copies the model for a checkpoint.
  kCheckpointCopy = 8,
  // The rest of a step: callbacks, messages.
  kOther = 9,
  // A minibatch of an evaluation or a prediction.
  kEvaluate = 10,
  // ---- other threads ----
  kFeed = 11,
  // One bucket; the last one has the control word.
  kAllReduce = 12,
  kCheckpointSave = 13,
  kPull = 14,
  kPush = 15,
};

inline constexpr size_t kTrainingKinds = 11;
inline constexpr size_t kKinds = 16;

// For people and for the fields of the API: "data wait" and "data_wait".
absl::string_view KindName(Kind kind);
absl::string_view KindField(Kind kind);
// The thread that has these spans: "training", "feed", "all-reduce",
// "checkpoint" or "servers".
absl::string_view KindThread(Kind kind);

// Part of a step, in contrast to what happens between steps.
inline constexpr bool IsStepKind(Kind kind) {
  return (kind >= Kind::kDataWait && kind <= Kind::kOptimizer) ||
         kind == Kind::kOther;
}

}  // namespace elasticdl::trace
