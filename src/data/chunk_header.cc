// See chunk_header.h.
#include "chunk_header.h"

#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "elasticdl/common/crc32.h"

namespace elasticdl::data::internal {
namespace {

constexpr uint32_t kMagic = 0x01020304;

// Compressor codes count from here.
constexpr uint32_t FirstCode(RecordIoVariant variant) {
  return variant == RecordIoVariant::kGo ? 0 : 1;
}

// The first chunk under `variant`, if it fits with what follows it.
std::optional<ChunkInfo> FirstChunk(absl::string_view file,
                                    RecordIoVariant variant) {
  const auto chunk = ParseChunkHeader(file, 0, variant);
  if (!chunk.ok()) return std::nullopt;
  const uint64_t end = kChunkHeaderBytes + chunk->payload_bytes;
  uint32_t magic = kMagic;
  if (file.size() - end >= sizeof(magic)) {
    std::memcpy(&magic, file.data() + end, sizeof(magic));
  }
  if (magic != kMagic) return std::nullopt;
  return *chunk;
}

bool ChecksumFits(absl::string_view file, const ChunkInfo& chunk,
                  RecordIoVariant variant) {
  const auto payload = file.substr(kChunkHeaderBytes, chunk.payload_bytes);
  return PayloadChecksum(payload, variant) == chunk.checksum;
}

// How far the headers can be walked.
uint64_t Reach(absl::string_view file, RecordIoVariant variant) {
  uint64_t offset = 0;
  while (offset < file.size()) {
    const auto chunk = ParseChunkHeader(file, offset, variant);
    if (!chunk.ok()) break;
    offset += kChunkHeaderBytes + chunk->payload_bytes;
  }
  return offset;
}

}  // namespace

absl::StatusOr<ChunkInfo> ParseChunkHeader(absl::string_view file,
                                           uint64_t offset,
                                           RecordIoVariant variant) {
  const uint64_t left = file.size() - offset;
  if (left < kChunkHeaderBytes) {
    return absl::DataLossError(absl::StrCat("truncated header, ", left, " of ",
                                            kChunkHeaderBytes, " bytes"));
  }
  uint32_t words[5];
  std::memcpy(words, file.data() + offset, sizeof(words));
  if (words[0] != kMagic) {
    return absl::DataLossError(absl::StrFormat(
        "bad magic number 0x%08x, not 0x%08x", words[0], kMagic));
  }
  const bool go = variant == RecordIoVariant::kGo;
  ChunkInfo chunk;
  chunk.offset = offset;
  chunk.checksum = go ? words[1] : words[2];
  chunk.payload_bytes = go ? words[3] : words[4];
  chunk.num_records = go ? words[4] : words[1];
  const uint32_t code = (go ? words[2] : words[3]) - FirstCode(variant);
  if (code > static_cast<uint32_t>(Compressor::kGzip)) {
    return absl::DataLossError(
        absl::StrCat("unknown compressor ", go ? words[2] : words[3]));
  }
  chunk.compressor = static_cast<Compressor>(code);
  if (chunk.payload_bytes > left - kChunkHeaderBytes) {
    return absl::DataLossError(
        absl::StrCat("truncated chunk, ", left - kChunkHeaderBytes, " of ",
                     chunk.payload_bytes, " payload bytes"));
  }
  return chunk;
}

RecordIoVariant DetectVariant(absl::string_view file) {
  const auto go = FirstChunk(file, RecordIoVariant::kGo);
  const auto python = FirstChunk(file, RecordIoVariant::kPython);
  if (go.has_value() != python.has_value()) {
    return go.has_value() ? RecordIoVariant::kGo : RecordIoVariant::kPython;
  }
  // Both fit by chance, so that only the payload can tell.
  if (go.has_value()) {
    return ChecksumFits(file, *go, RecordIoVariant::kGo) ||
                   !ChecksumFits(file, *python, RecordIoVariant::kPython)
               ? RecordIoVariant::kGo
               : RecordIoVariant::kPython;
  }
  // The first chunk is damaged: whichever can read more of the file.
  return Reach(file, RecordIoVariant::kGo) >=
                 Reach(file, RecordIoVariant::kPython)
             ? RecordIoVariant::kGo
             : RecordIoVariant::kPython;
}

uint32_t PayloadChecksum(absl::string_view payload, RecordIoVariant variant) {
  return variant == RecordIoVariant::kGo ? Crc32Ieee(payload) : Crc32c(payload);
}

void AppendChunkHeader(Compressor compressor, absl::string_view payload,
                       uint32_t num_records, std::string& out) {
  const uint32_t words[5] = {
      kMagic, Crc32Ieee(payload), static_cast<uint32_t>(compressor),
      static_cast<uint32_t>(payload.size()), num_records};
  out.append(reinterpret_cast<const char*>(words), sizeof(words));
}

}  // namespace elasticdl::data::internal
