// Saving in the background: order, replacement, stopping, readers meanwhile.
#include "elasticdl/checkpoint/async_saver.h"

#include <atomic>
#include <string>

#include "absl/time/time.h"
#include "checkpoint/memory_dir.h"
#include "checkpoint/test_snapshot.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "gtest/gtest.h"
#include "support/temp_dir.h"

namespace elasticdl::checkpoint {
namespace {

using ::elasticdl::test::TempDir;
using test::ExpectSame;
using test::MemoryDir;
using test::TestSnapshot;
using test::Versions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

// Something to wait for.
class Gate {
 public:
  void Open() {
    MutexLock lock(mu_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(mu_);
    while (!open_) changed_.Wait(mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

TEST(OwnedSnapshotTest, CopyOutlivesItsSource) {
  OwnedSnapshot copy;
  {
    const TestSnapshot source(4);
    copy = OwnedSnapshot::Copy(source.get());
  }
  TempDir dir;
  const TestSnapshot same(4);
  ExpectSame(*Load(test::MustSave(dir.path(), copy.snapshot)), same.get());
}

TEST(AsyncSaverTest, SavesAndCallsBack) {
  TempDir dir;
  AsyncSaver saver(dir.path(), {});
  std::string path;
  const TestSnapshot snapshot(5);
  saver.Submit(OwnedSnapshot::Copy(snapshot.get()),
               [&path](const absl::StatusOr<std::string>& result) {
                 path = result.value_or("");
               });
  ASSERT_TRUE(saver.Flush(kLong).ok());
  EXPECT_EQ(path, dir.Path("version-5"));
  ExpectSame(*Load(path), snapshot.get());
}

TEST(AsyncSaverTest, ReportsErrorsAndGoesOn) {
  TempDir dir;
  AsyncSaver saver(dir.path(), {});
  TestSnapshot bad(1);
  bad.get().version = -1;
  absl::Status status;
  saver.Submit(OwnedSnapshot::Copy(bad.get()),
               [&status](const absl::StatusOr<std::string>& result) {
                 status = result.status();
               });
  ASSERT_TRUE(saver.Flush(kLong).ok());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  saver.Submit(OwnedSnapshot::Copy(TestSnapshot(2).get()), nullptr);
  ASSERT_TRUE(saver.Flush(kLong).ok());
  EXPECT_THAT(Versions(dir.path()), ElementsAre(2));
}

// While version 1's callback is held up, 2 waits and is replaced by 3.
TEST(AsyncSaverTest, ANewerSnapshotReplacesTheWaitingOne) {
  TempDir dir;
  Gate first_is_in, go_on;
  absl::Status replaced;
  AsyncSaver saver(dir.path(), {});
  saver.Submit(OwnedSnapshot::Copy(TestSnapshot(1).get()),
               [&](const absl::StatusOr<std::string>&) {
                 first_is_in.Open();
                 go_on.Wait();
               });
  first_is_in.Wait();
  saver.Submit(OwnedSnapshot::Copy(TestSnapshot(2).get()),
               [&replaced](const absl::StatusOr<std::string>& result) {
                 replaced = result.status();
               });
  saver.Submit(OwnedSnapshot::Copy(TestSnapshot(3).get()), nullptr);
  EXPECT_EQ(saver.Flush(absl::ZeroDuration()).code(),
            absl::StatusCode::kDeadlineExceeded);
  go_on.Open();
  ASSERT_TRUE(saver.Flush(kLong).ok());
  EXPECT_EQ(replaced.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(replaced.message()),
              HasSubstr("version 2: replaced by version 3"));
  EXPECT_THAT(Versions(dir.path()), ElementsAre(1, 3));
}

TEST(AsyncSaverTest, StopFinishesTheSaveUnderWayAndCancelsTheRest) {
  TempDir dir;
  Gate first_is_in, go_on;
  std::atomic<int> cancelled = 0;
  const auto count = [&cancelled](const absl::StatusOr<std::string>& result) {
    cancelled += result.status().code() == absl::StatusCode::kCancelled;
  };
  AsyncSaver saver(dir.path(), {});
  saver.Submit(OwnedSnapshot::Copy(TestSnapshot(1).get()),
               [&](const absl::StatusOr<std::string>&) {
                 first_is_in.Open();
                 go_on.Wait();
               });
  first_is_in.Wait();
  saver.Submit(OwnedSnapshot::Copy(TestSnapshot(2).get()), count);
  saver.Stop();
  saver.Stop();
  saver.Submit(OwnedSnapshot::Copy(TestSnapshot(3).get()), count);
  EXPECT_EQ(cancelled, 1);
  go_on.Open();
  saver.Join();
  saver.Submit(OwnedSnapshot::Copy(TestSnapshot(4).get()), count);
  EXPECT_EQ(cancelled, 3);
  EXPECT_TRUE(saver.Flush(kLong).ok());
  EXPECT_THAT(Versions(dir.path()), ElementsAre(1));
}

TEST(AsyncSaverTest, ACallbackMaySubmit) {
  TempDir dir;
  AsyncSaver saver(dir.path(), {});
  saver.Submit(OwnedSnapshot::Copy(TestSnapshot(1).get()),
               [&saver](const absl::StatusOr<std::string>&) {
                 saver.Submit(OwnedSnapshot::Copy(TestSnapshot(2).get()),
                              nullptr);
               });
  ASSERT_TRUE(saver.Flush(kLong).ok());
  EXPECT_THAT(Versions(dir.path()), ElementsAre(1, 2));
}

// A reader always finds a good version while old ones are pruned.
TEST(AsyncSaverTest, AReaderSeesWholeVersionsOnly) {
  MemoryDir dir;
  test::MustSave(dir.path(), TestSnapshot(0, 100).get());
  std::atomic<bool> done = false;
  int loads = 0;
  Thread reader("reader", [&] {
    while (!done) {
      const absl::StatusOr<std::string> path = Resolve(dir.path());
      ASSERT_TRUE(path.ok()) << path.status();
      const absl::StatusOr<Loaded> loaded = Load(*path);
      // Pruned since: look again.
      if (absl::IsNotFound(loaded.status())) continue;
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      ExpectSame(*loaded, TestSnapshot(loaded->version, 100).get());
      ++loads;
    }
  });
  SaveOptions options;
  options.keep_max = 1;
  AsyncSaver saver(dir.path(), options);
  for (int64_t version = 1; version <= 300; ++version) {
    saver.Submit(OwnedSnapshot::Copy(TestSnapshot(version, 100).get()),
                 nullptr);
    EXPECT_TRUE(saver.Flush(kLong).ok());
  }
  done = true;
  reader.Join();
  EXPECT_GT(loads, 0);
  EXPECT_THAT(Versions(dir.path()), ElementsAre(300));
}

}  // namespace
}  // namespace elasticdl::checkpoint
