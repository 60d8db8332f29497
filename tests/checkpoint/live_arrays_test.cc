// Arrays that are saved while they change.
#include "elasticdl/checkpoint/live_arrays.h"

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/test_snapshot.h"
#include "elasticdl/checkpoint/async_saver.h"
#include "elasticdl/checkpoint/late_ledger.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/temp_dir.h"

namespace elasticdl::checkpoint {
namespace {

using ::elasticdl::test::TempDir;

// A model with two slots, whose numbers an "optimizer" counts up.
class Model {
 public:
  Model(size_t floats, const LiveOptions& options, uint32_t seed)
      : values_(3, std::vector<float>(floats)) {
    std::mt19937 random(seed);
    for (auto& array : values_) {
      for (float& value : array) value = static_cast<float>(random() % 1000);
    }
    std::vector<absl::Span<const char>> arrays;
    for (const auto& array : values_) arrays.push_back(Bytes(array, 0, floats));
    arrays_ = std::make_shared<LiveArrays>(arrays, options);
    snapshot_.snapshot.version = 7;
    // Two parameters, which end in the middle of a slice.
    const size_t cut = floats / 3;
    AddTensor(snapshot_.snapshot.variables, "a", 0, 0, cut);
    AddTensor(snapshot_.snapshot.variables, "b", 0, cut, floats);
    for (size_t slot = 1; slot < 3; ++slot) {
      const std::string name = slot == 1 ? "m" : "v";
      AddTensor(snapshot_.snapshot.slots, SlotName("a", name), slot, 0, cut);
      AddTensor(snapshot_.snapshot.slots, SlotName("b", name), slot, cut,
                floats);
    }
    snapshot_.snapshot.num_slot_runs = 2;
    then_ = OwnedSnapshot::Copy(snapshot_.snapshot);
    snapshot_.snapshot.live = std::make_shared<LiveReader>(arrays_);
  }

  void Step() {
    for (size_t i = 0; i < arrays_->num_slices(); ++i) {
      arrays_->BeforeChange(i);
      for (auto& array : values_) {
        for (size_t j = arrays_->begin(i); j < arrays_->end(i); j += 4) {
          array[j / 4] += 1;
        }
      }
    }
  }
  OwnedSnapshot Take() { return std::move(snapshot_); }
  LiveArrays& arrays() { return *arrays_; }
  Snapshot& then() { return then_.snapshot; }

 private:
  static absl::Span<const char> Bytes(const std::vector<float>& array,
                                      size_t begin, size_t end) {
    return absl::MakeConstSpan(
        reinterpret_cast<const char*>(array.data() + begin),
        (end - begin) * sizeof(float));
  }
  void AddTensor(std::vector<NamedTensor>& to, const std::string& name,
                 size_t array, size_t begin, size_t end) {
    to.push_back({name,
                  v1::DT_FLOAT,
                  {static_cast<int64_t>(end - begin)},
                  Bytes(values_[array], begin, end)});
  }

  std::vector<std::vector<float>> values_;
  std::shared_ptr<LiveArrays> arrays_;
  OwnedSnapshot snapshot_;
  OwnedSnapshot then_;
};

LiveOptions Slices(size_t bytes, size_t most_aside) {
  LiveOptions options;
  options.slice_bytes = bytes;
  options.most_aside_bytes = most_aside;
  return options;
}

// Whatever the two threads do when, what is saved is of one moment.
TEST(LiveArraysTest, WhatIsSavedIsOfOneMoment) {
  for (uint32_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const size_t floats = 1000 + random() % 700000;
    const size_t slice = 4 * (1 + random() % 20000);
    Model model(floats, Slices(slice, (random() % 4) * 3 * slice), seed);
    TempDir dir;
    SaveOptions options;
    options.max_file_bytes = static_cast<int64_t>(4 * (1 + random() % floats));
    AsyncSaver saver(dir.path(), options);
    LedgerPromise promise;
    OwnedSnapshot snapshot = model.Take();
    snapshot.snapshot.late = promise.late();
    absl::StatusOr<std::string> path = absl::UnknownError("not saved");
    saver.Submit(std::move(snapshot),
                 [&](const absl::StatusOr<std::string>& p) { path = p; });
    for (int i = 0; i < 3; ++i) model.Step();
    v1::Ledger ledger;
    ledger.set_step(7);
    promise.Keep({ledger, "run"});
    ASSERT_TRUE(saver.Flush(absl::Minutes(1)).ok());
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_TRUE(model.arrays().finished());
    auto loaded = Load(*path);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    model.then().ledger = ledger;
    test::ExpectSame(*loaded, model.then());
    EXPECT_EQ(loaded->lineage.run, "run");
  }
}

// One after the other may have it.
TEST(LiveArraysTest, RoomIsUsedAgain) {
  LiveOptions options = Slices(4096, 1 << 20);
  options.room = std::make_shared<AsideRoom>(5 * 3 * 4096);
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    Model model(20000, options, seed);
    Model second(20000, options, seed);
    EXPECT_TRUE(options.room->Take().empty());
    // More slices than there is room for.
    model.Step();
    second.Step();
    for (Model* each : {&model, &second}) {
      TempDir dir;
      const auto path = Save(dir.path(), each->Take().snapshot);
      ASSERT_TRUE(path.ok()) << path.status();
      test::ExpectSame(*Load(*path), each->then());
    }
    EXPECT_FALSE(options.room->Take().empty());
    options.room->GiveBack();
  }
}

TEST(LiveArraysTest, WhatIsGivenUpIsNotSaved) {
  Model model(100000, Slices(4096, 0), 1);
  model.arrays().GiveUp("the model starts anew");
  model.Step();
  TempDir dir;
  const absl::Status status = Save(dir.path(), model.Take().snapshot).status();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("the model starts anew"));
  EXPECT_TRUE(ListVersions(dir.path())->versions.empty());
}

TEST(LiveArraysTest, WithoutALedgerItIsNotSaved) {
  Model model(100000, Slices(4096, 0), 1);
  OwnedSnapshot snapshot = model.Take();
  {
    LedgerPromise promise;
    snapshot.snapshot.late = promise.late();
  }
  TempDir dir;
  EXPECT_TRUE(absl::IsCancelled(Save(dir.path(), snapshot.snapshot).status()));
  EXPECT_TRUE(ListVersions(dir.path())->versions.empty());
}

// However a save ends, training does not wait for it any more.
TEST(LiveArraysTest, AReaderThatGoesAwayIsNotWaitedFor) {
  Model model(100000, Slices(4096, 0), 1);
  model.Take();
  EXPECT_TRUE(model.arrays().finished());
  model.Step();
  EXPECT_TRUE(model.arrays().given_up().ok());
}

TEST(LiveArraysTest, AReaderThatHangsIsGivenUp) {
  LiveOptions options = Slices(4096, 8192);
  options.patience = absl::Milliseconds(1);
  Model model(100000, options, 1);
  const OwnedSnapshot hangs = model.Take();
  model.Step();
  EXPECT_TRUE(absl::IsCancelled(model.arrays().given_up()));
  EXPECT_GE(model.arrays().waited(), absl::Milliseconds(1));
}

TEST(LiveArraysTest, AWaitCanBeEndedFromOutside) {
  Model model(100000, Slices(4096, 8192), 1);
  const OwnedSnapshot hangs = model.Take();
  model.arrays().GiveUpIfWaiting("nobody waits");
  EXPECT_TRUE(model.arrays().given_up().ok());
  std::thread trainer([&] { model.Step(); });
  while (model.arrays().given_up().ok()) {
    model.arrays().GiveUpIfWaiting("hurry up");
    std::this_thread::yield();
  }
  trainer.join();
  EXPECT_EQ(model.arrays().given_up().message(), "hurry up");
}

}  // namespace
}  // namespace elasticdl::checkpoint
