// A server's state in a file.
//
//   "EDLPSSN2", uint64 bytes of the header, the header (v1::PsSnapshot), zeros
//   up to a multiple of 8, the dense arrays (values, then each slot), the
//   records of each table (EmbeddingTable), the payloads of staged pushes and
//   of buckets that leave (each up to a multiple of 8), uint32 CRC-32C of all
//   of it. Little-endian.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server_state.h"

namespace elasticdl::ps {

// `header` is state.Header(), `payloads` state.Payloads(). Writes to `path` and
// syncs it. Allocates nothing and takes no lock, so that a forked child of a
// process with threads may call it. 0, or an errno; then the file is gone.
int WriteSnapshot(const std::string& path, const std::string& header,
                  const std::vector<absl::string_view>& payloads,
                  const ServerState& state);

// DATA_LOSS for a file that is not complete or not a snapshot.
absl::StatusOr<ServerState> ReadSnapshot(const std::string& path,
                                         ServerState::Options options,
                                         int64_t& log_position);

}  // namespace elasticdl::ps
