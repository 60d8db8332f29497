// Writes the tensors of a snapshot whose arrays change meanwhile.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "elasticdl/checkpoint/snapshot.h"
#include "layout.h"

namespace elasticdl::checkpoint::internal {

// Parameters and slots are read side by side, in the order in which an
// optimizer changes them: so little has to be put aside. All is read before the
// disk is waited for. CANCELLED if the snapshot was given up, or there will be
// no ledger for it.
absl::Status WriteLive(const std::string& folder, const Snapshot& snapshot,
                       int64_t max_bytes, Manifest& manifest);

}  // namespace elasticdl::checkpoint::internal
