// The compressors of RecordIO payloads.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "buffer_pool.h"

namespace elasticdl::data::internal {

// Bytes in memory from a pool.
struct PooledBytes {
  absl::string_view bytes;
  std::shared_ptr<const void> memory;
};

// Decompression. DATA_LOSS says what does not fit; a hostile input never makes
// more than kMaxDecompressedBytes.
inline constexpr uint64_t kMaxDecompressedBytes = uint64_t{1} << 31;

// https://github.com/google/snappy framing_format.txt, checksums verified.
absl::StatusOr<PooledBytes> SnappyFramesDecode(absl::string_view data,
                                               BufferPool& pool);
absl::StatusOr<PooledBytes> SnappyBlockDecode(absl::string_view data,
                                              BufferPool& pool);
// One or more gzip members.
absl::StatusOr<PooledBytes> GzipDecode(absl::string_view data,
                                       BufferPool& pool);

// Compression, appended to `out`.
void SnappyFramesEncode(absl::string_view data, std::string& out);
absl::Status GzipEncode(absl::string_view data, std::string& out);

}  // namespace elasticdl::data::internal
