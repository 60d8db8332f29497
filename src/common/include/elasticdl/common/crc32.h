// CRC-32 (IEEE, of gzip) and CRC-32C (Castagnoli, of snappy, TFRecord and our
// checkpoints), with carry-less multiplication where the processor has it.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace elasticdl {

uint32_t Crc32Ieee(absl::string_view data);
uint32_t Crc32c(absl::string_view data);

// The checksum of some bytes followed by `data`, where `crc` is the checksum of
// those bytes.
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view data);

// The checksum of some bytes followed by `second_bytes` others, from the
// checksums of both. Parts of a file can be checked at the same time.
uint32_t JoinCrc32c(uint32_t first, uint32_t second, uint64_t second_bytes);

// The masked form in which snappy frames and TFRecord files store a CRC-32C.
// The CRC of data that contains its own CRC would otherwise be weak.
constexpr uint32_t MaskCrc32c(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

// Table-driven versions that need no special instructions; for tests and for
// processors without them.
uint32_t Crc32IeeePortable(absl::string_view data);
uint32_t ExtendCrc32cPortable(uint32_t crc, absl::string_view data);

}  // namespace elasticdl
