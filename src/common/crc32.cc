// Both checksums are one algorithm with two polynomials. Long inputs are folded
// 64 bytes at a time by carry-less multiplication (V. Gopal et al., "Fast CRC
// Computation Using PCLMULQDQ"), short ones go through tables, eight bytes a
// step, or for CRC-32C through the processor's crc32 instruction.
//
// Own code, because Debian 12 has no C or C++ library for CRC-32C, and zlib's
// CRC-32 was measured at a quarter of this one's speed (1.3 against 5.3 GB/s
// for 64 KiB and more on a busy two-core machine); RecordIO is checked as fast
// as it is read.
#include "elasticdl/common/crc32.h"

#include <array>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define ELASTICDL_CRC32_X86 1
#endif

namespace elasticdl {
namespace {

// Bit-reflected polynomials.
constexpr uint32_t kIeee = 0xedb88320;
constexpr uint32_t kCastagnoli = 0x82f63b78;

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables(uint32_t polynomial) {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
    }
    tables[0][i] = crc;
  }
  for (uint32_t i = 0; i < 256; ++i) {
    for (size_t slice = 1; slice < 8; ++slice) {
      const uint32_t last = tables[slice - 1][i];
      tables[slice][i] = (last >> 8) ^ tables[0][last & 0xff];
    }
  }
  return tables;
}

template <uint32_t kPolynomial>
constexpr Tables kTables = MakeTables(kPolynomial);

// Continues the (uninverted) register `crc` over `size` bytes.
template <uint32_t kPolynomial>
uint32_t ExtendPortable(uint32_t crc, const char* data, size_t size) {
  const Tables& t = kTables<kPolynomial>;
  while (size >= 8) {
    uint64_t word;
    std::memcpy(&word, data, sizeof(word));
    word ^= crc;
    crc = t[7][word & 0xff] ^ t[6][(word >> 8) & 0xff] ^
          t[5][(word >> 16) & 0xff] ^ t[4][(word >> 24) & 0xff] ^
          t[3][(word >> 32) & 0xff] ^ t[2][(word >> 40) & 0xff] ^
          t[1][(word >> 48) & 0xff] ^ t[0][word >> 56];
    data += 8;
    size -= 8;
  }
  while (size-- > 0) {
    crc = (crc >> 8) ^ t[0][(crc ^ static_cast<uint8_t>(*data++)) & 0xff];
  }
  return crc;
}

// The product of two polynomials modulo the polynomial, all reflected.
constexpr uint32_t Multiply(uint32_t polynomial, uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? polynomial : 0);
  }
  return product;
}

#ifdef ELASTICDL_CRC32_X86

// x^n modulo the polynomial, reflected, as the multiplication needs it.
constexpr uint64_t PowerOfX(uint32_t polynomial, int n) {
  uint32_t value = 0x80000000;
  for (int i = 0; i < n; ++i) {
    value = (value >> 1) ^ ((value & 1) != 0 ? polynomial : 0);
  }
  return static_cast<uint64_t>(value) << 1;
}
static_assert(PowerOfX(kIeee, 4 * 128 + 32) == 0x154442bd4);
static_assert(PowerOfX(kIeee, 4 * 128 - 32) == 0x1c6e41596);

__attribute__((target("sse4.2,pclmul"))) inline __m128i Load(const char* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

// a shifted by the distance encoded in the constants `k`, plus b.
__attribute__((target("sse4.2,pclmul"))) inline __m128i Fold(__m128i a,
                                                             __m128i b,
                                                             __m128i k) {
  const __m128i low = _mm_clmulepi64_si128(a, k, 0x00);
  const __m128i high = _mm_clmulepi64_si128(a, k, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), b);
}

// Folds all whole 16-byte blocks of `data` (at least 64 bytes) into one block
// that has the same remainder.
template <uint32_t kPolynomial>
__attribute__((target("sse4.2,pclmul"))) __m128i FoldBlocks(uint32_t crc,
                                                            const char*& data,
                                                            size_t& size) {
  const __m128i by_64 = _mm_set_epi64x(PowerOfX(kPolynomial, 4 * 128 - 32),
                                       PowerOfX(kPolynomial, 4 * 128 + 32));
  const __m128i by_16 = _mm_set_epi64x(PowerOfX(kPolynomial, 128 - 32),
                                       PowerOfX(kPolynomial, 128 + 32));
  __m128i a =
      _mm_xor_si128(Load(data), _mm_cvtsi32_si128(static_cast<int>(crc)));
  __m128i b = Load(data + 16);
  __m128i c = Load(data + 32);
  __m128i d = Load(data + 48);
  data += 64;
  size -= 64;
  while (size >= 64) {
    a = Fold(a, Load(data), by_64);
    b = Fold(b, Load(data + 16), by_64);
    c = Fold(c, Load(data + 32), by_64);
    d = Fold(d, Load(data + 48), by_64);
    data += 64;
    size -= 64;
  }
  a = Fold(Fold(Fold(a, b, by_16), c, by_16), d, by_16);
  while (size >= 16) {
    a = Fold(a, Load(data), by_16);
    data += 16;
    size -= 16;
  }
  return a;
}

__attribute__((target("sse4.2"))) uint32_t ExtendCrc32cInstruction(
    uint32_t crc, const char* data, size_t size) {
  uint64_t wide = crc;
  while (size >= 8) {
    uint64_t word;
    std::memcpy(&word, data, sizeof(word));
    wide = _mm_crc32_u64(wide, word);
    data += 8;
    size -= 8;
  }
  crc = static_cast<uint32_t>(wide);
  while (size-- > 0) {
    crc = _mm_crc32_u8(crc, static_cast<uint8_t>(*data++));
  }
  return crc;
}

template <uint32_t kPolynomial>
__attribute__((target("sse4.2,pclmul"))) uint32_t ExtendX86(uint32_t crc,
                                                            const char* data,
                                                            size_t size) {
  constexpr auto kShort = kPolynomial == kCastagnoli ? &ExtendCrc32cInstruction
                                                     : &ExtendPortable<kIeee>;
  if (size >= 256) {
    const __m128i block = FoldBlocks<kPolynomial>(crc, data, size);
    char bytes[16];
    std::memcpy(bytes, &block, sizeof(bytes));
    crc = kShort(0, bytes, sizeof(bytes));
  }
  return kShort(crc, data, size);
}

bool HasInstructions() {
  static const bool has = __builtin_cpu_supports("pclmul") != 0 &&
                          __builtin_cpu_supports("sse4.2") != 0;
  return has;
}

#endif  // ELASTICDL_CRC32_X86

template <uint32_t kPolynomial>
uint32_t Crc(uint32_t before, absl::string_view data) {
#ifdef ELASTICDL_CRC32_X86
  if (HasInstructions()) {
    return ~ExtendX86<kPolynomial>(~before, data.data(), data.size());
  }
#endif
  return ~ExtendPortable<kPolynomial>(~before, data.data(), data.size());
}

}  // namespace

uint32_t Crc32Ieee(absl::string_view data) { return Crc<kIeee>(0, data); }
uint32_t Crc32c(absl::string_view data) { return Crc<kCastagnoli>(0, data); }
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view data) {
  return Crc<kCastagnoli>(crc, data);
}

uint32_t JoinCrc32c(uint32_t first, uint32_t second, uint64_t second_bytes) {
  // Each byte that follows multiplies the first checksum by x^8. The inversions
  // at both ends cancel out.
  uint32_t factor = 0x80000000;  // x^0
  uint32_t power = 0x00800000;   // x^8, then its squares
  for (uint64_t left = second_bytes; left != 0; left >>= 1) {
    if ((left & 1) != 0) factor = Multiply(kCastagnoli, factor, power);
    power = Multiply(kCastagnoli, power, power);
  }
  return Multiply(kCastagnoli, factor, first) ^ second;
}

uint32_t Crc32IeeePortable(absl::string_view data) {
  return ~ExtendPortable<kIeee>(~0U, data.data(), data.size());
}
uint32_t ExtendCrc32cPortable(uint32_t crc, absl::string_view data) {
  return ~ExtendPortable<kCastagnoli>(~crc, data.data(), data.size());
}

}  // namespace elasticdl
