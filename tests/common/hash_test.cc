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
