#include "activity_line.h"

#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

TEST(ActivityLineTest, TellsWhatTookLongWhenItHasEnded) {
  ActivityLine line;
  EXPECT_EQ(line.Set("starting workers", At(0)), "");
  EXPECT_EQ(line.Set("compiling", At(1)), "") << "not worth a line";
  EXPECT_EQ(line.Set("compiling", At(10)), "") << "goes on";
  EXPECT_EQ(line.text(), "compiling");
  EXPECT_EQ(line.time(At(11)), absl::Seconds(10));
  EXPECT_EQ(line.Set("", At(18.25)), "compiling took 17.2s");
  EXPECT_EQ(line.Set("", At(90)), "");
  EXPECT_EQ(line.Set("stopping", At(91)), "");
}

TEST(ActivityLineTest, BytesThatAreCountedHaveNoLine) {
  ActivityLine line;
  line.Set("loading, 1 of 4 MB", At(0));
  EXPECT_EQ(line.Set("loading, 2 of 4 MB", At(5)), "");
  EXPECT_EQ(line.Set("", At(10)), "");
}

}  // namespace
}  // namespace elasticdl::master
