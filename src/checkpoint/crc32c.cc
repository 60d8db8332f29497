#include "crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

namespace elasticdl::checkpoint::internal {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Reflected.

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    }
    table[i] = value;
  }
  return table;
}

#if defined(__x86_64__)
// The instruction gives 8 bytes per 3 cycles, faster than any disk.
__attribute__((target("sse4.2"))) uint32_t Crc32cSse42(uint32_t crc,
                                                       absl::string_view data) {
  uint64_t state = ~crc;
  const char* p = data.data();
  size_t left = data.size();
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, sizeof(word));
    state = __builtin_ia32_crc32di(state, word);
  }
  uint32_t rest = static_cast<uint32_t>(state);
  for (; left > 0; --left, ++p) {
    rest = __builtin_ia32_crc32qi(rest, static_cast<uint8_t>(*p));
  }
  return ~rest;
}
#endif

}  // namespace

uint32_t Crc32cPortable(uint32_t crc, absl::string_view data) {
  static constexpr std::array<uint32_t, 256> kTable = MakeTable();
  uint32_t state = ~crc;
  for (const char c : data) {
    state = (state >> 8) ^ kTable[(state ^ static_cast<uint8_t>(c)) & 0xff];
  }
  return ~state;
}

uint32_t Crc32c(uint32_t crc, absl::string_view data) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return Crc32cSse42(crc, data);
#endif
  return Crc32cPortable(crc, data);
}

}  // namespace elasticdl::checkpoint::internal
