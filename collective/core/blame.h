// Who is at fault, as a payload of the error: it stays with the error whatever
// is put in front of its message, and no message can be mistaken for it.
#pragma once

#include "absl/status/status.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::collective {

// `status`, which blames `rank` of its world. Below 0: nobody.
absl::Status Blame(int rank, absl::Status status);

// What calls return that come after the one that ended the world with `why`:
// ABORTED, with the same words, blaming the same rank.
absl::Status AsAborted(const absl::Status& why);

}  // namespace elasticdl::collective
