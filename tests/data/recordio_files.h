// Hand-made RecordIO bytes for tests, written without the product's code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace elasticdl::data {

inline std::string Le32(uint32_t value) {
  std::string out;
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(value >> 8 * i));
  return out;
}

// Bit by bit, with the reflected polynomial.
inline uint32_t SlowCrc(absl::string_view data, uint32_t polynomial) {
  uint32_t crc = ~0U;
  for (const char c : data) {
    crc ^= static_cast<uint8_t>(c);
    for (int i = 0; i < 8; ++i) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
    }
  }
  return ~crc;
}
inline uint32_t SlowCrcIeee(absl::string_view data) {
  return SlowCrc(data, 0xedb88320);
}
inline uint32_t SlowCrc32c(absl::string_view data) {
  return SlowCrc(data, 0x82f63b78);
}

inline std::string RawPayload(const std::vector<std::string>& records) {
  std::string out;
  for (const std::string& record : records) {
    out += Le32(static_cast<uint32_t>(record.size())) + record;
  }
  return out;
}

inline std::string GoChunk(const std::string& payload, uint32_t compressor,
                           size_t num_records) {
  return Le32(0x01020304) + Le32(SlowCrcIeee(payload)) + Le32(compressor) +
         Le32(static_cast<uint32_t>(payload.size())) +
         Le32(static_cast<uint32_t>(num_records)) + payload;
}

inline std::string PythonChunk(const std::string& payload, uint32_t compressor,
                               size_t num_records) {
  return Le32(0x01020304) + Le32(static_cast<uint32_t>(num_records)) +
         Le32(SlowCrc32c(payload)) + Le32(compressor) +
         Le32(static_cast<uint32_t>(payload.size())) + payload;
}

}  // namespace elasticdl::data
