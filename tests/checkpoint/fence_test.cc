// Several writers of one directory, on machines that do not see each other's
// locks: who may save, who may delete what.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/memory_dir.h"
#include "checkpoint/test_snapshot.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace elasticdl::checkpoint {
namespace {

using test::ExpectSame;
using test::MemoryDir;
using test::MustSave;
using test::TestSnapshot;
using test::Versions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Names(const std::string& dir) {
  return ListDirectory(dir).value_or(std::vector<std::string>{"?"});
}

TestSnapshot Of(const Lineage& lineage, int64_t version) {
  TestSnapshot snapshot(version);
  snapshot.get().lineage = lineage;
  return snapshot;
}

TEST(FenceTest, AVersionTellsItsLineage) {
  MemoryDir dir;
  const TestSnapshot snapshot = Of({"run", 7}, 120);
  const std::string path = MustSave(dir.path(), snapshot.get());
  const auto loaded = Load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->lineage.run, "run");
  EXPECT_EQ(loaded->lineage.generation, 7);
  const Version listed = ListVersions(dir.path())->versions.at(0);
  EXPECT_EQ(listed.lineage.run, "run");
  EXPECT_EQ(listed.lineage.generation, 7);
}

// As older versions of this program have written them.
TEST(FenceTest, AVersionWithoutALineageIsRead) {
  MemoryDir dir;
  const TestSnapshot snapshot(120);
  const std::string path = MustSave(dir.path(), snapshot.get());
  EXPECT_EQ(ReadFile(JoinPath(path, "manifest.json"))->find("lineage"),
            std::string::npos);
  EXPECT_EQ(ListVersions(dir.path())->versions.at(0).lineage.run, "");
  ExpectSame(*Load(path), snapshot.get());
}

TEST(FenceTest, AnAbandonedLineageSavesAndDeletesNothing) {
  MemoryDir dir;
  MustSave(dir.path(), Of({"run", 1}, 500).get(), /*keep_max=*/1);
  // All workers were lost; the job goes on from there in generation 5.
  ASSERT_TRUE(Fence(dir.path(), {"run", 5}).ok());
  const std::vector<std::string> before = Names(dir.path());
  SaveOptions options;
  options.keep_max = 1;
  const auto late = Save(dir.path(), Of({"run", 1}, 900).get(), options);
  EXPECT_EQ(late.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("began again"));
  EXPECT_EQ(Names(dir.path()), before);
  MustSave(dir.path(), Of({"run", 5}, 600).get(), /*keep_max=*/1);
  EXPECT_THAT(Versions(dir.path()), ElementsAre(600));
  MustSave(dir.path(), Of({"another", 1}, 700).get());
  MustSave(dir.path(), Of({}, 800).get());
  EXPECT_THAT(Versions(dir.path()), ElementsAre(600, 700, 800));
}

TEST(FenceTest, AFenceNeedsNoDirectory) {
  MemoryDir dir;
  EXPECT_TRUE(Fence(dir.Path("none"), {"run", 5}).ok());
  EXPECT_FALSE(FileExists(dir.Path("none")));
}

// ---- scratch folders ----

void Age(const std::string& path, int64_t hours) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec -= hours * 3600;
  const struct timespec times[2] = {now, now};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

// The lock of another machine is not seen here.
TEST(FenceTest, TheScratchFolderOfAnotherMachineIsLeftAlone) {
  MemoryDir dir;
  const std::string other = dir.Path(".tmp-version-7-0123456789ab-Xy12ab");
  ASSERT_TRUE(MakeDirectories(other).ok());
  const std::string file = JoinPath(other, "variables-0-of-1.ckpt");
  ASSERT_TRUE(WriteFileAtomic(file, "half").ok());
  MustSave(dir.path(), TestSnapshot(1).get());
  EXPECT_TRUE(FileExists(file));
  // Begun long ago and still being written.
  Age(other, 30);
  MustSave(dir.path(), TestSnapshot(2).get());
  EXPECT_TRUE(FileExists(file));
  // Nothing happens there any more.
  Age(file, 30);
  Age(other, 30);
  MustSave(dir.path(), TestSnapshot(3).get());
  EXPECT_FALSE(FileExists(other));
}

// Lowers the number of file descriptors that can be open, to `left` more.
class FewDescriptors {
 public:
  explicit FewDescriptors(int left) {
    const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(next);
    getrlimit(RLIMIT_NOFILE, &before_);
    struct rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next + left);
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  struct rlimit before_;
};

TEST(FenceTest, WithoutFileDescriptorsNothingIsLeftBehind) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer needs a descriptor to check an object's type";
#endif
  MemoryDir dir;
  const TestSnapshot snapshot(1);
  int failed = 0;
  for (int left = 0; left < 8; ++left) {
    absl::Status status;
    {
      const FewDescriptors few(left);
      status = Save(dir.path(), snapshot.get()).status();
    }
    if (status.ok()) break;
    ++failed;
    EXPECT_THAT(Names(dir.path()), IsEmpty()) << left << ": " << status;
  }
  EXPECT_GE(failed, 2);
  EXPECT_THAT(Versions(dir.path()), ElementsAre(1));
}

// Visits of the failpoint in one save into a folder that is new from `top` on.
int CountSyncs(const std::string& top, const std::string& dir) {
  const TestSnapshot snapshot(1);
  for (int visit = 1;; ++visit) {
    EXPECT_TRUE(
        InitFailpoints(absl::StrCat("checkpoint.fsync=error@", visit, "x1"))
            .ok());
    const bool ok = Save(dir, snapshot.get()).ok();
    EXPECT_TRUE(InitFailpoints("").ok());
    EXPECT_TRUE(RemoveTree(top).ok());
    if (ok) return visit - 1;
  }
}

TEST(FenceTest, EveryNewLevelOfThePathIsSynced) {
  MemoryDir dir;
  const int one = CountSyncs(dir.Path("a"), dir.Path("a"));
  EXPECT_EQ(CountSyncs(dir.Path("a"), dir.Path("a/b/c")), one + 2);
  EXPECT_EQ(CountSyncs(dir.Path("a"), dir.Path("a/b/c/")), one + 2);
}

}  // namespace
}  // namespace elasticdl::checkpoint
