#include "elasticdl/common/suggest.h"

#include <gtest/gtest.h>

namespace elasticdl {
namespace {

TEST(SuggestTest, CountsEdits) {
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", "abc"), 0u);
  EXPECT_EQ(EditDistance("acb", "abc"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
}

TEST(SuggestTest, DoesNotGuessWildly) {
  EXPECT_EQ(Nearest("xyz", {"train", "data"}), "");
  EXPECT_EQ(Nearest("trian", {"train", "data"}), "train");
  EXPECT_EQ(Nearest("eval", {"train", "evaluate"}), "evaluate");
  EXPECT_EQ(Nearest("TRAIN", {"train", "data"}), "train");
}

// Of short words only a letter that is missing, that is too much or that has
// changed its place counts as a slip.
TEST(SuggestTest, IsCarefulWithShortWords) {
  EXPECT_EQ(Nearest("foo", {"zoo", "top"}), "");
  EXPECT_EQ(Nearest("zo", {"zoo", "top"}), "zoo");
  EXPECT_EQ(Nearest("los", {"feed", "loss"}), "loss");
  EXPECT_EQ(Nearest("tpo", {"zoo", "top"}), "top");
  EXPECT_EQ(Nearest("stap", {"stop", "top"}), "stop");
}

}  // namespace
}  // namespace elasticdl
