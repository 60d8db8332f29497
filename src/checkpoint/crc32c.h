// CRC-32C (Castagnoli), by the processor's instruction where it has one.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace elasticdl::checkpoint::internal {

// The checksum of some bytes followed by `data`, when `crc` is that of the
// bytes before. Crc32c(0, …) starts.
uint32_t Crc32c(uint32_t crc, absl::string_view data);

// The same from a table; for tests and other processors.
uint32_t Crc32cPortable(uint32_t crc, absl::string_view data);

}  // namespace elasticdl::checkpoint::internal
