// Save, list, resolve and load on a real file system.
#include "elasticdl/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/memory_dir.h"
#include "checkpoint/test_snapshot.h"
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
using ::testing::StartsWith;

void Overwrite(const std::string& path, const std::string& data) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << data;
}

std::vector<std::string> Names(const std::string& dir) {
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(dir);
  EXPECT_TRUE(names.ok()) << names.status();
  return names.ok() ? *names : std::vector<std::string>();
}

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(CheckpointTest, RoundTrips) {
  MemoryDir dir;
  const TestSnapshot snapshot(120);
  const std::string path = MustSave(dir.Path("a/b"), snapshot.get());
  EXPECT_EQ(path, dir.Path("a/b/version-120"));
  EXPECT_THAT(Names(path),
              ElementsAre("ledger.pb", "manifest.json", "optimizer-0-of-1.ckpt",
                          "variables-0-of-1.ckpt"));
  EXPECT_THAT(Names(dir.Path("a/b")), ElementsAre("version-120"));
  absl::StatusOr<Loaded> loaded = Load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ExpectSame(*loaded, snapshot.get());
  // Views stay valid in a moved object.
  const Loaded moved = std::move(loaded).value();
  ExpectSame(moved, snapshot.get());
  EXPECT_NE(moved.FindVariable("fc1/bias"), nullptr);
  EXPECT_EQ(moved.FindVariable("nothing"), nullptr);
  EXPECT_NE(moved.FindSlot("fc1/bias", "m"), nullptr);
  EXPECT_EQ(moved.FindSlot("fc1/bias", "v"), nullptr);
}

TEST(CheckpointTest, RoundTripsWithoutSlotsAndLedger) {
  MemoryDir dir;
  TestSnapshot snapshot(0);
  snapshot.get().slots.clear();
  snapshot.get().ledger.reset();
  snapshot.get().optimizer.clear();
  const absl::StatusOr<Loaded> loaded =
      Load(MustSave(dir.path(), snapshot.get()));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ExpectSame(*loaded, snapshot.get());
}

TEST(CheckpointTest, LoadingTellsHowFarItIs) {
  const MemoryDir dir;
  // More than one part of a file.
  const TestSnapshot snapshot(3, 200000);
  const std::string path = MustSave(dir.path(), snapshot.get());
  std::vector<int64_t> told;
  int64_t total = 0;
  const absl::StatusOr<Loaded> loaded =
      Load(path, {[&](int64_t bytes, int64_t total_bytes) {
             told.push_back(bytes);
             total = total_bytes;
             return absl::OkStatus();
           }});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_GT(told.size(), 6u);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), total);
  EXPECT_GT(total, 1600000);
}

TEST(CheckpointTest, LoadingCanBeBrokenOff) {
  const MemoryDir dir;
  const TestSnapshot snapshot(3, 200000);
  const std::string path = MustSave(dir.path(), snapshot.get());
  int calls = 0;
  const absl::StatusOr<Loaded> loaded = Load(
      path, {[&](int64_t, int64_t) {
        return ++calls < 3 ? absl::OkStatus() : absl::AbortedError("enough");
      }});
  EXPECT_EQ(loaded.status(), absl::AbortedError("enough"));
  EXPECT_EQ(calls, 3);
}

TEST(CheckpointTest, DividesIntoFiles) {
  MemoryDir dir;
  const TestSnapshot snapshot(5);
  SaveOptions options;
  options.max_file_bytes = 100;
  const absl::StatusOr<std::string> path =
      Save(dir.path(), snapshot.get(), options);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_TRUE(FileExists(JoinPath(*path, "variables-3-of-4.ckpt")));
  EXPECT_TRUE(FileExists(JoinPath(*path, "optimizer-1-of-2.ckpt")));
  const absl::StatusOr<Loaded> loaded = Load(*path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ExpectSame(*loaded, snapshot.get());
}

TEST(CheckpointTest, ReplacesAVersionOfTheSameNumber) {
  MemoryDir dir;
  MustSave(dir.path(), TestSnapshot(3, 10).get());
  const TestSnapshot second(3, 2000);
  const absl::StatusOr<Loaded> loaded =
      Load(MustSave(dir.path(), second.get(), /*keep_max=*/1));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ExpectSame(*loaded, second.get());
  EXPECT_THAT(Names(dir.path()), ElementsAre("version-3"));
}

TEST(CheckpointTest, RefusesBadSnapshots) {
  MemoryDir dir;
  TestSnapshot twice(1);
  twice.get().variables[1].name = twice.get().variables[0].name;
  EXPECT_EQ(Save(dir.path(), twice.get()).status().code(),
            absl::StatusCode::kInvalidArgument);
  TestSnapshot misfit(1);
  misfit.get().slots[0].shape = {1};
  EXPECT_THAT(Message(Save(dir.path(), misfit.get()).status()),
              HasSubstr("slot fc1/weight/m float32[1] has 4000 bytes instead"));
  TestSnapshot negative(1);
  negative.get().version = -1;
  EXPECT_FALSE(Save(dir.path(), negative.get()).ok());
  EXPECT_THAT(Names(dir.path()), ElementsAre());
}

// Defect 7 of the original: 0 deleted each checkpoint just written.
TEST(CheckpointTest, KeepsAllWithZero) {
  MemoryDir dir;
  for (int64_t v = 1; v <= 6; ++v) {
    MustSave(dir.path(), TestSnapshot(v).get(), 0);
  }
  EXPECT_THAT(Versions(dir.path()), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(CheckpointTest, PrunesTheOldestByNumber) {
  MemoryDir dir;
  for (const int64_t v : {9, 10, 100, 101}) {
    MustSave(dir.path(), TestSnapshot(v).get(), 2);
  }
  EXPECT_THAT(Versions(dir.path()), ElementsAre(100, 101));
  MustSave(dir.path(), TestSnapshot(102).get(), 1);
  EXPECT_THAT(Versions(dir.path()), ElementsAre(102));
}

TEST(CheckpointTest, PruningLeavesNewerAndIncompleteVersionsAlone) {
  MemoryDir dir;
  MustSave(dir.path(), TestSnapshot(1).get());
  MustSave(dir.path(), TestSnapshot(50).get());
  const std::string torn = MustSave(dir.path(), TestSnapshot(2).get());
  ASSERT_TRUE(RemoveTree(JoinPath(torn, "ledger.pb")).ok());
  ASSERT_TRUE(MakeDirectories(dir.Path("version-60")).ok());
  ASSERT_TRUE(MakeDirectories(dir.Path("notes")).ok());
  MustSave(dir.path(), TestSnapshot(10).get(), 1);
  EXPECT_THAT(Versions(dir.path()), ElementsAre(10, 50));
  EXPECT_THAT(Names(dir.path()), ElementsAre("notes", "version-10", "version-2",
                                             "version-50", "version-60"));
}

TEST(CheckpointTest, AFailedPruneDoesNotFailTheSave) {
  MemoryDir dir;
  MustSave(dir.path(), TestSnapshot(1).get());
  ASSERT_TRUE(InitFailpoints("checkpoint.delete=error").ok());
  MustSave(dir.path(), TestSnapshot(2).get(), 1);
  ASSERT_TRUE(InitFailpoints("").ok());
  EXPECT_THAT(Versions(dir.path()), ElementsAre(1, 2));
}

TEST(CheckpointTest, ListsNothingWhereNothingIs) {
  MemoryDir dir;
  EXPECT_THAT(Versions(dir.Path("missing")), ElementsAre());
  const absl::Status status = Resolve(dir.Path("missing")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(status), HasSubstr("does not exist"));
  EXPECT_EQ(Resolve(dir.path()).status().code(), absl::StatusCode::kNotFound);
}

TEST(CheckpointTest, SkipsTornVersionsWithAReason) {
  MemoryDir dir;
  MustSave(dir.path(), TestSnapshot(1).get());
  const std::string two = MustSave(dir.path(), TestSnapshot(2).get());
  const std::string three = MustSave(dir.path(), TestSnapshot(3).get());
  const std::string four = MustSave(dir.path(), TestSnapshot(4).get());
  std::filesystem::resize_file(JoinPath(two, "variables-0-of-1.ckpt"), 10);
  std::filesystem::remove(JoinPath(three, "optimizer-0-of-1.ckpt"));
  std::filesystem::remove(JoinPath(four, "manifest.json"));
  std::filesystem::remove(JoinPath(four, "variables-0-of-1.ckpt"));
  std::filesystem::rename(dir.Path("version-1"), dir.Path("version-7"));
  MustSave(dir.path(), TestSnapshot(1).get());
  const absl::StatusOr<Listing> listing = ListVersions(dir.path());
  ASSERT_TRUE(listing.ok());
  EXPECT_THAT(Versions(dir.path()), ElementsAre(1));
  ASSERT_EQ(listing->skipped.size(), 4u);
  EXPECT_THAT(listing->skipped[0].reason, HasSubstr("has 10 bytes instead"));
  EXPECT_THAT(listing->skipped[1].reason, HasSubstr("optimizer-0-of-1.ckpt"));
  EXPECT_THAT(listing->skipped[2].reason, HasSubstr("no manifest"));
  EXPECT_THAT(listing->skipped[3].reason, HasSubstr("that of version 1"));
  EXPECT_EQ(*Resolve(dir.path()), dir.Path("version-1"));
}

TEST(CheckpointTest, ResolvesAVersionOrADirectory) {
  MemoryDir dir;
  MustSave(dir.path(), TestSnapshot(5).get());
  MustSave(dir.path(), TestSnapshot(40).get());
  EXPECT_EQ(*Resolve(dir.Path("version-5/")), dir.Path("version-5"));
  EXPECT_EQ(*Resolve(dir.path()), dir.Path("version-40"));
  // Same size, other contents: only the checksum can tell.
  const std::string file = dir.Path("version-40/variables-0-of-1.ckpt");
  std::string bytes = *ReadFile(file);
  bytes[bytes.size() / 2] ^= 1;
  Overwrite(file, bytes);
  EXPECT_THAT(Versions(dir.path()), ElementsAre(5, 40));
  EXPECT_EQ(*Resolve(dir.path()), dir.Path("version-5"));
  EXPECT_EQ(Resolve(dir.Path("version-40")).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(CheckpointTest, NamesTheFileThatIsBad) {
  MemoryDir dir;
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const TestSnapshot snapshot(1, 50);
  const std::string path = MustSave(dir.path(), snapshot.get());
  for (const std::string& name : Names(path)) {
    const std::string file = JoinPath(path, name);
    const std::string good = *ReadFile(file);
    for (int i = 0; i < 60; ++i) {
      std::string bad = good;
      const size_t at = random() % good.size();
      if (i % 2 == 0) {
        bad.resize(at);
      } else {
        bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
      }
      Overwrite(file, bad);
      const absl::StatusOr<Loaded> loaded = Load(path);
      if (loaded.ok()) {
        // Only white space in the manifest.
        EXPECT_EQ(name, "manifest.json");
        ExpectSame(*loaded, snapshot.get());
        continue;
      }
      EXPECT_EQ(loaded.status().code(), absl::StatusCode::kDataLoss)
          << loaded.status();
      EXPECT_THAT(Message(loaded.status()), HasSubstr(file));
      EXPECT_EQ(Verify(path).code(), absl::StatusCode::kDataLoss);
    }
    Overwrite(file, good);
  }
  ExpectSame(*Load(path), snapshot.get());
}

TEST(CheckpointTest, TellsACheckpointOfAnotherModel) {
  MemoryDir dir;
  const TestSnapshot snapshot(1, 50);
  const absl::StatusOr<Loaded> loaded =
      Load(MustSave(dir.path(), snapshot.get()));
  ASSERT_TRUE(loaded.ok());
  std::vector<NamedTensor> model = snapshot.get().variables;
  EXPECT_TRUE(CheckCompatible(*loaded, model).ok());
  // It was written under both of its names; now it has one.
  const std::vector<std::string> other_names = {"fc1/other", model[0].name};
  const std::vector<NamedTensor> fewer(model.begin() + 1, model.end());
  EXPECT_FALSE(CheckCompatible(*loaded, fewer).ok());
  EXPECT_TRUE(CheckCompatible(*loaded, fewer, other_names).ok());
  model[0].shape = {25, 2};
  model[1].name = "other/bias";
  model[2].dtype = v1::DT_INT32;
  const absl::Status status = CheckCompatible(*loaded, model);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("checkpoint of another model"));
  EXPECT_THAT(Message(status),
              HasSubstr("fc1/weight is float32[25,2] in the model and "
                        "float32[50] in the checkpoint"));
  EXPECT_THAT(Message(status),
              HasSubstr("the checkpoint has no other/bias float32[7]"));
  EXPECT_THAT(Message(status), HasSubstr("and 1 more"));
}

TEST(CheckpointTest, ErrorsWhileWritingLeaveNothingBehind) {
  MemoryDir dir;
  MustSave(dir.path(), TestSnapshot(1).get());
  for (const char* point :
       {"checkpoint.write", "checkpoint.fsync", "checkpoint.rename"}) {
    for (int visit = 1; visit < 100; ++visit) {
      ASSERT_TRUE(
          InitFailpoints(absl::StrCat(point, "=error@", visit, "x1")).ok());
      const absl::StatusOr<std::string> path =
          Save(dir.path(), TestSnapshot(2).get());
      ASSERT_TRUE(InitFailpoints("").ok());
      if (path.ok()) {
        EXPECT_GT(visit, 1);
        break;
      }
      EXPECT_EQ(path.status().code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(Message(path.status()), StartsWith("save checkpoint "));
      for (const std::string& name : Names(dir.path())) {
        EXPECT_THAT(name, StartsWith("version-")) << point << visit;
      }
      EXPECT_TRUE(Resolve(dir.path()).ok());
    }
    ASSERT_TRUE(RemoveTree(dir.Path("version-2")).ok());
  }
}

TEST(CheckpointTest, FileWhereTheDirectoryShouldBe) {
  MemoryDir dir;
  Overwrite(dir.Path("file"), "x");
  EXPECT_FALSE(Save(dir.Path("file"), TestSnapshot(1).get()).ok());
  EXPECT_FALSE(ListVersions(dir.Path("file")).ok());
}

}  // namespace
}  // namespace elasticdl::checkpoint
