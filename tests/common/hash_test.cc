#include "elasticdl/common/hash.h"

#include <gtest/gtest.h>

namespace elasticdl {
namespace {

// Values of the algorithms' authors.
TEST(HashTest, Fnv1a) {
  EXPECT_EQ(Fnv1a(""), 0xcbf29ce484222325);
  EXPECT_EQ(Fnv1a("a"), 0xaf63dc4c8601ec8c);
  EXPECT_EQ(Fnv1a("foobar"), 0x85944171f73967e8);
  EXPECT_EQ(Fnv1a("bar", Fnv1a("foo")), Fnv1a("foobar"));
  EXPECT_EQ(Fnv1a("\xff"), 0xaf64724c8602eb6e);
}

TEST(HashTest, SplitMix64) {
  SplitMix64 random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317u);
  EXPECT_EQ(random.Next(), 3203168211198807973u);
  EXPECT_EQ(random.Next(), 9817491932198370423u);
  EXPECT_EQ(random.Next(), 4593380528125082431u);
}

TEST(HashTest, OfNumbers) {
  EXPECT_EQ(MixHash(0), 0xe220a8397b1dcdaf);
  EXPECT_EQ(MixHash(1), 0x910a2dec89025cc1);
  EXPECT_EQ(MixBits(0), 0u);
  for (uint64_t x : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    EXPECT_EQ(UnmixHash(MixHash(x)), x);
  }
}

TEST(HashTest, Sha256) {
  EXPECT_EQ(Sha256Hex("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 parts;
  parts.Add("a");
  parts.Add("bc");
  EXPECT_EQ(parts.Hex(), Sha256Hex("abc"));
}

}  // namespace
}  // namespace elasticdl
