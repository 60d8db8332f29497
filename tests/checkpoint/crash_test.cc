// A process that saves is killed at every failpoint, at every visit.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/memory_dir.h"
#include "checkpoint/test_snapshot.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/file.h"
#include "gtest/gtest.h"

namespace elasticdl::checkpoint {
namespace {

using test::ExpectSame;
using test::MemoryDir;
using test::MustSave;
using test::TestSnapshot;
using test::Versions;
using ::testing::ElementsAre;

// More than one write per file.
constexpr size_t kFloats = 100000;

// Saves in a child process that has `failpoints`. True if it was killed.
bool SaveInChild(const std::string& dir, const Snapshot& snapshot, int keep,
                 const std::string& failpoints) {
  const pid_t child = fork();
  if (child == 0) {
    SaveOptions options;
    options.keep_max = keep;
    const bool ok =
        InitFailpoints(failpoints).ok() && Save(dir, snapshot, options).ok();
    _exit(ok ? 0 : 1);
  }
  EXPECT_GT(child, 0);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) return true;
  EXPECT_EQ(WEXITSTATUS(status), 0) << failpoints;
  return false;
}

// The newest complete version must be one of the two, whole.
void ExpectOldOrNew(const std::string& dir, const Snapshot& old_one,
                    const Snapshot& new_one) {
  const absl::StatusOr<std::string> path = Resolve(dir);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(ListVersions(dir)->versions.back().path, *path);
  const absl::StatusOr<Loaded> loaded = Load(*path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  // Told apart by the ledger: they may have the same version number.
  const bool is_old = loaded->ledger->committed_records() ==
                      old_one.ledger->committed_records();
  ExpectSame(*loaded, is_old ? old_one : new_one);
}

class CrashTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CrashTest, NewestCompleteVersionIsAlwaysGood) {
  const TestSnapshot one(1, kFloats);
  const TestSnapshot two(2, kFloats);
  const TestSnapshot three(3, 10);
  int kills = 0;
  for (int visit = 1;; ++visit) {
    SCOPED_TRACE(absl::StrCat(GetParam(), " visit ", visit));
    MemoryDir dir;
    MustSave(dir.path(), one.get());
    const bool killed = SaveInChild(dir.path(), two.get(), /*keep=*/1,
                                    absl::StrCat(GetParam(), "=kill@", visit));
    ExpectOldOrNew(dir.path(), one.get(), two.get());
    if (!killed) {
      EXPECT_THAT(Versions(dir.path()), ElementsAre(2));
      break;
    }
    ++kills;
    // The next process saves as if nothing had happened, and cleans up.
    MustSave(dir.path(), three.get(), /*keep_max=*/1);
    EXPECT_THAT(Versions(dir.path()), ElementsAre(3));
    EXPECT_EQ(ListDirectory(dir.path())->size(), 1u);
    ASSERT_LT(visit, 100);
  }
  EXPECT_GT(kills, 0);
}

TEST_P(CrashTest, ReplacingAVersionIsAtomicToo) {
  const TestSnapshot old_one(7, kFloats);
  TestSnapshot new_one(8, kFloats);
  new_one.get().version = 7;
  for (int visit = 1;; ++visit) {
    SCOPED_TRACE(absl::StrCat(GetParam(), " visit ", visit));
    MemoryDir dir;
    MustSave(dir.path(), old_one.get());
    const bool killed = SaveInChild(dir.path(), new_one.get(), /*keep=*/1,
                                    absl::StrCat(GetParam(), "=kill@", visit));
    ExpectOldOrNew(dir.path(), old_one.get(), new_one.get());
    if (!killed) break;
    ASSERT_LT(visit, 100);
  }
}

INSTANTIATE_TEST_SUITE_P(Failpoints, CrashTest,
                         ::testing::Values("checkpoint.write",
                                           "checkpoint.fsync",
                                           "checkpoint.rename",
                                           "checkpoint.delete"));

TEST(LivingWriterTest, LeavesTheFolderOfALivingWriterAlone) {
  const TestSnapshot one(1, kFloats);
  const TestSnapshot two(2, kFloats);
  MemoryDir dir;
  // Stopped in the middle of its save, but alive.
  const pid_t child = fork();
  if (child == 0) {
    const bool ok = InitFailpoints("checkpoint.write=stop@2x1").ok() &&
                    Save(dir.path(), one.get()).ok();
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  MustSave(dir.path(), two.get());
  EXPECT_EQ(ListDirectory(dir.path())->size(), 2u);
  ASSERT_EQ(kill(child, SIGCONT), 0);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(Versions(dir.path()), ElementsAre(1, 2));
  ExpectSame(*Load(dir.Path("version-1")), one.get());
}

}  // namespace
}  // namespace elasticdl::checkpoint
