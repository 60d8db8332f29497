// Writes the tensors of a snapshot while training changes its arrays.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "elasticdl/checkpoint/snapshot.h"
#include "layout.h"

namespace elasticdl::checkpoint::internal {

// Parameters and slots are read in parallel, in the order in which an optimizer
// changes them, so that little has to be put aside. Everything is read before
// waiting for the disk. CANCELLED if the snapshot was dropped, or there will be
// no ledger for it.
absl::Status WriteLive(const std::string& folder, const Snapshot& snapshot,
                       int64_t max_bytes, Manifest& manifest);

}  // namespace elasticdl::checkpoint::internal
