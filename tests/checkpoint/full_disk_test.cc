// A disk that fills up during a save: a tmpfs of 64 KiB.
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "checkpoint/test_snapshot.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/file.h"
#include "gtest/gtest.h"
#include "support/temp_dir.h"

namespace elasticdl::checkpoint {
namespace {

using ::elasticdl::test::TempDir;
using test::ExpectSame;
using test::MustSave;
using test::TestSnapshot;
using ::testing::HasSubstr;

constexpr int kSkipped = 77;

// Mounts in a mount namespace of this process alone, which ends with it.
bool MountSmallDisk(const std::string& path) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    return false;
  }
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", path.c_str(), "tmpfs", 0, "size=64k") == 0;
}

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
  fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!MountSmallDisk(dir.path())) {
      fprintf(stderr, "cannot mount a tmpfs: %s\n", strerror(errno));
      _exit(kSkipped);
    }
    SaveOnFullDisk(dir.path());
    fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kSkipped) {
    GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace elasticdl::checkpoint
