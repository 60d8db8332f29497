// The 20-byte chunk headers of both RecordIO variants.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/data/recordio.h"

namespace elasticdl::data::internal {

inline constexpr size_t kChunkHeaderBytes = 20;

// Reads the header at `offset` of `file`, without first_record. DATA_LOSS says
// why it cannot be a chunk of this variant that ends within the file.
absl::StatusOr<ChunkInfo> ParseChunkHeader(absl::string_view file,
                                           uint64_t offset,
                                           RecordIoVariant variant);

// Which variant the file is: the one whose first chunk fits, by its checksum if
// both do, else the one whose chunks reach farther.
RecordIoVariant DetectVariant(absl::string_view file);

uint32_t PayloadChecksum(absl::string_view payload, RecordIoVariant variant);

// Appends a kGo header.
void AppendChunkHeader(Compressor compressor, absl::string_view payload,
                       uint32_t num_records, std::string& out);

}  // namespace elasticdl::data::internal
