// Random schedules of training, saves that end in any order, losses of the
// model, damage to the disk and restarts of the master, against the truth:
// every trained state has a number of its own. Whatever happens, the job falls
// back to the newest version on the disk that is a state of its own past, and
// hears of its last save.
//
// Seeds are 1 .. 5000, five hundred in each test case; a failing one is
// printed.
#include "checkpoint_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace elasticdl::master {
namespace {

constexpr int kGroups = 10;
constexpr int kSeedsPerGroup = 500;

class Schedule {
 public:
  explicit Schedule(uint64_t seed)
      : random_(seed), fenced_(Chance(50)), history_("run", -1) {
    history_.SetLineage(generation_);
  }

  void Run() {
    for (int i = 0; i < 300; ++i) {
      Step();
      Check();
      if (::testing::Test::HasFailure()) return;
    }
    Finish();
  }

 private:
  struct Save {
    int64_t generation = 0;
    int64_t step = 0;
    int state = 0;
    std::string error;
  };
  struct OnDisk {
    Save save;
    std::string run;
    bool broken = false;
  };

  int Pick(int low, int high) {
    return low + static_cast<int>(random_() % (high - low + 1));
  }
  bool Chance(int percent) { return Pick(0, 99) < percent; }
  int64_t step() const { return static_cast<int64_t>(model_.size()) - 1; }
  template <typename T>
  T TakeAny(std::vector<T>& from) {
    const int i = Pick(0, static_cast<int>(from.size()) - 1);
    T item = from[i];
    from.erase(from.begin() + i);
    return item;
  }

  void Step() {
    const int dice = Pick(0, 99);
    if (dice < 50) {
      model_.push_back(next_state_++);
    } else if (dice < 65) {
      Begin();
    } else if (dice < 77) {
      Publish();
    } else if (dice < 89) {
      Report();
    } else if (dice < 93) {
      DamageDisk();
    } else if (dice < 96) {
      RestartMaster();
    } else {
      Lose();
    }
  }

  // What a model was restored from is not saved again.
  void Begin() {
    if (step() <= std::max<int64_t>(0, base_)) return;
    writing_.push_back({generation_, step(), model_.back(), ""});
  }
  // Of whatever lineage: its writer may not have heard of the end of it.
  void Publish() {
    if (writing_.empty()) return;
    Save save = TakeAny(writing_);
    if (Chance(10) || (fenced_ && save.generation < generation_)) {
      save.error = "no luck";
    } else {
      disk_[save.step] = {save, "run", false};
    }
    reports_.push_back(save);
  }
  void Report() {
    if (reports_.empty()) return;
    const Save save = TakeAny(reports_);
    history_.Report(save.generation, save.step, save.error);
    heard_.push_back(save);
    // Of no consequence.
    if (Chance(10)) {
      history_.Report(save.generation, save.step, save.error);
    }
  }
  void DamageDisk() {
    if (disk_.empty()) return;
    auto it = disk_.begin();
    std::advance(it, Pick(0, static_cast<int>(disk_.size()) - 1));
    switch (Pick(0, 2)) {
      case 0:
        disk_.erase(it);
        break;
      case 1:
        it->second.broken = true;
        break;
      default:
        it->second.run = "another";
    }
  }

  void RestartMaster() {
    const v1::CheckpointState state = history_.ToProto();
    CheckpointHistory next("run", -1);
    next.FromProto(state);
    EXPECT_EQ(next.ToProto().SerializeAsString(), state.SerializeAsString());
    EXPECT_EQ(next.lineage(), history_.lineage());
    history_.FromProto(state);
    heard_.erase(
        std::remove_if(heard_.begin(), heard_.end(),
                       [](const Save& save) { return !save.error.empty(); }),
        heard_.end());
  }

  std::vector<checkpoint::Version> List() const {
    std::vector<checkpoint::Version> versions;
    for (const auto& [step, version] : disk_) {
      versions.push_back({step,
                          absl::StrCat("version-", step),
                          {version.run, version.save.generation}});
    }
    return versions;
  }

  // The newest state of the model's past that can be read.
  int64_t NewestOfMine() const {
    for (int64_t s = step(); s >= 0; --s) {
      const auto found = disk_.find(s);
      if (found != disk_.end() && !found->second.broken &&
          found->second.run == "run" && found->second.save.state == model_[s]) {
        return s;
      }
    }
    return -1;
  }

  void Lose() {
    const int64_t expected = NewestOfMine();
    const checkpoint::Version* chosen = nullptr;
    const auto usable = history_.Usable(List(), step());
    for (const checkpoint::Version& version : usable) {
      EXPECT_EQ(disk_[version.version].save.state, model_.at(version.version))
          << "version " << version.version << " is of another model";
      if (disk_[version.version].broken) continue;
      chosen = &version;
      break;
    }
    EXPECT_EQ(chosen == nullptr ? -1 : chosen->version, expected);
    if (::testing::Test::HasFailure()) return;
    history_.FallBack(chosen);
    model_.resize(std::max<int64_t>(0, expected) + 1);
    heard_.clear();
    base_ = expected;
    // Its first world may fail before it is level.
    generation_ += Pick(1, 2);
    if (Chance(50)) Report();
    history_.SetLineage(generation_);
  }

  // What the master can know.
  void Check() {
    int64_t settled = base_;
    bool saved = true;
    for (const Save& save : heard_) {
      if (save.step > step() || model_[save.step] != save.state) continue;
      if (save.step > settled) {
        settled = save.step;
        saved = save.error.empty();
      } else if (save.step == settled) {
        saved = saved || save.error.empty();
      }
    }
    EXPECT_EQ(history_.settled_step(), settled);
    EXPECT_EQ(history_.error().empty(), saved);
  }

  void Finish() {
    model_.push_back(next_state_++);
    Begin();
    while (!writing_.empty()) Publish();
    while (!reports_.empty()) Report();
    Check();
    EXPECT_EQ(history_.settled_step(), step()) << "the job hangs";
  }

  std::mt19937_64 random_;
  const bool fenced_;
  int64_t generation_ = 1;
  CheckpointHistory history_;
  // The state that each step has led to.
  std::vector<int> model_ = {0};
  int next_state_ = 1;
  int64_t base_ = -1;
  std::vector<Save> writing_;
  std::vector<Save> reports_;
  std::vector<Save> heard_;
  std::map<int64_t, OnDisk> disk_;
};

class CheckpointScheduleTest : public ::testing::TestWithParam<int> {};

TEST_P(CheckpointScheduleTest, FallsBackToItsOwnPastAndHearsOfItsLastSave) {
  for (int i = 0; i < kSeedsPerGroup; ++i) {
    const int seed = GetParam() * kSeedsPerGroup + i + 1;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Schedule(seed).Run();
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CheckpointScheduleTest,
                         ::testing::Range(0, kGroups));

TEST(CheckpointHistoryTest, AJobThatBeganWithACheckpointNeedNotSaveIt) {
  CheckpointHistory history("run", 120);
  EXPECT_EQ(history.settled_step(), 120);
  EXPECT_EQ(history.lineage(), 0);
  history.SetLineage(1);
  EXPECT_TRUE(history.Report(1, 130, ""));
  history.FallBack(nullptr);
  EXPECT_EQ(history.settled_step(), 120);
  EXPECT_FALSE(history.base().has_value());
}

TEST(CheckpointHistoryTest, OneGoodVersionOfAStepIsEnough) {
  CheckpointHistory history("run", -1);
  history.SetLineage(1);
  EXPECT_FALSE(history.Report(1, 5, "disk full"));
  EXPECT_EQ(history.error(), "disk full");
  EXPECT_TRUE(history.Report(1, 5, ""));
  EXPECT_FALSE(history.Report(1, 5, "disk full"));
  EXPECT_EQ(history.error(), "");
}

}  // namespace
}  // namespace elasticdl::master
