#include "checkpoint_lines.h"

#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

TEST(CheckpointLinesTest, RareOnesHaveALineEach) {
  CheckpointLines lines;
  EXPECT_EQ(lines.Saved(At(0), "a/version-2", absl::Milliseconds(5)),
            "saved a/version-2 in 5ms");
  EXPECT_EQ(lines.Saved(At(10), "a/version-4", absl::Milliseconds(6)),
            "saved a/version-4 in 6ms");
  EXPECT_EQ(lines.Saved(At(20), "a/version-6", absl::Nanoseconds(20923874)),
            "saved a/version-6 in 20.9ms");
  EXPECT_EQ(lines.Saved(At(30), "a/version-8", absl::Milliseconds(3217)),
            "saved a/version-8 in 3.21s");
  EXPECT_EQ(lines.Rest(), "");
}

TEST(CheckpointLinesTest, ManyShareALine) {
  CheckpointLines lines;
  lines.Saved(At(0), "a/version-2", absl::Milliseconds(5));
  EXPECT_EQ(lines.Saved(At(1), "a/version-4", absl::Milliseconds(5)), "");
  EXPECT_EQ(lines.Saved(At(9), "a/version-6", absl::Milliseconds(5)), "");
  EXPECT_EQ(lines.Saved(At(11), "a/version-8", absl::Milliseconds(5)),
            "saved a/version-8 in 5ms, and 2 versions before it");
  // The last one is always told.
  EXPECT_EQ(lines.Saved(At(12), "a/version-10", absl::Milliseconds(7)), "");
  EXPECT_EQ(lines.Saved(At(13), "a/version-12", absl::Milliseconds(8)), "");
  EXPECT_EQ(lines.Rest(), "saved a/version-12 in 8ms, and 1 version before it");
  EXPECT_EQ(lines.Rest(), "");
}

}  // namespace
}  // namespace elasticdl::master
