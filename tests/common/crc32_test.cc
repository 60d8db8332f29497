// Checksums against published values, zlib and each other.
#include "elasticdl/common/crc32.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <string>

namespace elasticdl {
namespace {

TEST(Crc32Test, KnownValues) {
  EXPECT_EQ(Crc32Ieee(""), 0U);
  EXPECT_EQ(Crc32Ieee("123456789"), 0xcbf43926U);
  EXPECT_EQ(Crc32c(""), 0U);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43U);
}

TEST(Crc32Test, AgreesWithZlibAndTablesForEveryLength) {
  std::mt19937 random(7);
  std::string data(2000, '\0');
  for (char& c : data) c = static_cast<char>(random());
  for (size_t size = 0; size + 3 < data.size(); size += size < 600 ? 1 : 97) {
    // Unaligned starts too.
    const absl::string_view part(data.data() + size % 4, size);
    const auto* bytes = reinterpret_cast<const Bytef*>(part.data());
    EXPECT_EQ(Crc32Ieee(part), crc32(0, bytes, part.size())) << size;
    EXPECT_EQ(Crc32Ieee(part), Crc32IeeePortable(part)) << size;
    EXPECT_EQ(Crc32c(part), ExtendCrc32cPortable(0, part)) << size;
  }
}

TEST(Crc32Test, ExtendsAtEveryCut) {
  std::mt19937 random(7);
  std::string data(1000, '\0');
  for (char& c : data) c = static_cast<char>(random());
  const uint32_t whole = Crc32c(data);
  const absl::string_view view = data;
  for (size_t cut = 0; cut <= data.size(); cut += 13) {
    const absl::string_view head = view.substr(0, cut);
    const absl::string_view tail = view.substr(cut);
    EXPECT_EQ(ExtendCrc32c(Crc32c(head), tail), whole) << cut;
    EXPECT_EQ(ExtendCrc32cPortable(Crc32c(head), tail), whole) << cut;
    EXPECT_EQ(JoinCrc32c(Crc32c(head), Crc32c(tail), tail.size()), whole)
        << cut;
  }
}

// The example of snappy's framing format: the masked value of CRC 0.
TEST(Crc32Test, Mask) {
  EXPECT_EQ(MaskCrc32c(0), 0xa282ead8U);
  EXPECT_EQ(MaskCrc32c(0x00018000U), 0xa282ead8U + 3U);
}

}  // namespace
}  // namespace elasticdl
