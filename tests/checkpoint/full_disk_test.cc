// A disk that fills up during a save: a tmpfs of 64 KiB.
#include <string>

#include "checkpoint/test_snapshot.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/file.h"
#include "gtest/gtest.h"
#include "support/small_disk.h"
#include "support/temp_dir.h"

namespace elasticdl::checkpoint {
namespace {

using ::elasticdl::test::RunOnSmallDisk;
using ::elasticdl::test::TempDir;
using test::ExpectSame;
using test::MustSave;
using test::TestSnapshot;
using ::testing::HasSubstr;

// In the child process: what a user expects of a full disk.
void SaveOnFullDisk(const std::string& dir) {
  const TestSnapshot small(1, 1000);
  MustSave(dir, small.get());
  const TestSnapshot large(2, 10000);
  const absl::Status status = Save(dir, large.get()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("No space left"));
  // The space is free again, and what was there is good.
  EXPECT_EQ(ListDirectory(dir)->size(), 1u);
  const absl::StatusOr<std::string> newest = Resolve(dir);
  ASSERT_TRUE(newest.ok()) << newest.status();
  ExpectSame(*Load(*newest), small.get());
  const TestSnapshot next(3, 1000);
  ExpectSame(*Load(MustSave(dir, next.get())), next.get());
}

TEST(FullDiskTest, KeepsTheOldVersionAndRecovers) {
  TempDir dir;
  if (!RunOnSmallDisk(dir.path(), "64k", [&] { SaveOnFullDisk(dir.path()); })) {
    GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  }
}

}  // namespace
}  // namespace elasticdl::checkpoint
