// Which rank is blamed for an error, as a payload of the error: annotations do
// not change it, and it cannot be confused with text in the message.
#pragma once

#include "absl/status/status.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::collective {

// `status` with the blame on `rank` of its world. Below 0: nobody.
absl::Status Blame(int rank, absl::Status status);

// `status`, which NCCL has caused (IsNcclFailure).
absl::Status MarkNcclFailure(absl::Status status);

// The error of later calls, after one that ended the world with `why`: ABORTED,
// with the same message, blame and mark.
absl::Status AsAborted(const absl::Status& why);

}  // namespace elasticdl::collective
