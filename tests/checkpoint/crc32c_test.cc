// CRC-32C against published values (RFC 3720, B.4).
#include "crc32c.h"

#include <random>
#include <string>

#include "gtest/gtest.h"

namespace elasticdl::checkpoint::internal {
namespace {

TEST(Crc32cTest, KnownValues) {
  EXPECT_EQ(Crc32c(0, ""), 0u);
  EXPECT_EQ(Crc32c(0, "123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(0, std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(0, std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32cTest, InPartsAndPortably) {
  std::mt19937_64 random(7);
  std::string data(1000, '\0');
  for (char& c : data) c = static_cast<char>(random());
  for (size_t cut = 0; cut <= data.size(); cut += 13) {
    const uint32_t whole = Crc32c(0, data);
    const absl::string_view view = data;
    EXPECT_EQ(Crc32c(Crc32c(0, view.substr(0, cut)), view.substr(cut)), whole);
    EXPECT_EQ(Crc32cPortable(0, view.substr(cut)), Crc32c(0, view.substr(cut)));
  }
}

}  // namespace
}  // namespace elasticdl::checkpoint::internal
