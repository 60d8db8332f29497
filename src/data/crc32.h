// CRC-32 (IEEE, of gzip) and CRC-32C (Castagnoli, of snappy), with carry-less
// multiplication where the processor has it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace elasticdl::data::internal {

uint32_t Crc32Ieee(absl::string_view data);
uint32_t Crc32c(absl::string_view data);

// Table-driven versions that need no special instructions; for tests and for
// processors without them.
uint32_t Crc32IeeePortable(absl::string_view data);
uint32_t Crc32cPortable(absl::string_view data);

}  // namespace elasticdl::data::internal
