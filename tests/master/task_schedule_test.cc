// Random schedules of grants, partial commits, failures, crashes, preemptions,
// snapshots, cut backs, restarts and successions (a new master repeats what the
// old one has recorded, or goes on from a state that stands for it) against a
// model of what a trainer has in its weights. Whatever happens, at the end
// every record of every epoch is in the surviving weights exactly once, or
// reported as set aside.
//
// Seeds are 1 .. 3000, a hundred in each test case; a failing one is printed.
// --gtest_filter='*/<(seed - 1) / 100>' repeats the hundred with it.
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

#include "elasticdl/ledger.h"
#include "task_fixture.h"

namespace elasticdl::master {
namespace {

constexpr int kGroups = 30;
constexpr int kSeedsPerGroup = 100;

using Place = std::tuple<int32_t, std::string, int64_t>;

// What one commit put into the weights: the records, in the order of training.
struct Trained {
  int32_t epoch;
  std::string shard;
  std::vector<int64_t> records;
};

struct Checkpoint {
  v1::Ledger ledger;
  size_t history = 0;
  int64_t step = 0;
};

class Schedule {
 public:
  explicit Schedule(uint64_t seed) : random_(seed) {
    options_.minibatch_size = Pick(1, 5);
    options_.num_minibatches_per_task = Pick(1, 6);
    options_.num_epochs = Pick(1, 3);
    options_.shuffle = Chance(50);
    options_.seed = seed;
    options_.task_max_failures = Pick(1, 4);
    options_.train_end_task = Chance(50);
    options_.validation_shards = {MakeShard("v", 0, Pick(1, 60))};
    options_.final_evaluation = Chance(50);
    const int shards = Pick(1, 4);
    for (int i = 0; i < shards; ++i) {
      const int begin = Pick(0, 10);
      options_.training_shards.push_back(MakeShard(
          "s" + std::to_string(i), begin, begin + Pick(i == 0 ? 1 : 0, 60)));
    }
    // Some schedules are calm, some are a massacre.
    trouble_ = Pick(0, 12);
    tasks_.emplace(MakeTasks(options_));
    Watch();
    checkpoints_.push_back({tasks_->Snapshot(), 0, 0});
  }

  void Run() {
    for (int i = 0; !tasks_->Finished(); ++i) {
      // In the end the world is kind, so that it ends.
      if (i == 2000) trouble_ = 0;
      ASSERT_LT(i, 20000) << "never finishes: " << tasks_->Summary().ToString();
      Step();
      if (::testing::Test::HasFatalFailure()) return;
      RecordEvaluation();
    }
    Verify();
  }

 private:
  struct InHand {
    int64_t worker_id = 0;
    v1::Task task;
    int64_t at = 0;
  };

  int Pick(int low, int high) {
    return low + static_cast<int>(random_() % (high - low + 1));
  }
  bool Chance(int percent) { return Pick(0, 99) < percent; }

  void Step() {
    now_ += absl::Seconds(Pick(0, 100));
    if (Chance(trouble_)) {
      Trouble();
    } else if (Chance(3)) {
      Shorten();
    } else if (Chance(5)) {
      checkpoints_.push_back({tasks_->Snapshot(), history_.size(), step_});
    } else if (tasks_->FinalEvaluationDue() ||
               (Chance(3) && !tasks_->TrainingDone())) {
      tasks_->StartEvaluation(step_).IgnoreError();
    } else if (Chance(50)) {
      Grant();
    } else {
      Work();
    }
  }

  void Grant() {
    const int64_t worker = live_[Pick(0, 3)];
    if (tasks_->NumHeld(worker, v1::TRAINING) >= 2) return;
    const GrantResult grant = tasks_->Grant(now_, worker);
    if (!grant.task.has_value()) return;
    hands_.push_back({worker, *grant.task, grant.task->range().begin()});
  }

  // A worker goes on with the oldest task of the kind that it would do first.
  void Work() {
    if (hands_.empty()) return;
    const int64_t worker =
        hands_[Pick(0, static_cast<int>(hands_.size()) - 1)].worker_id;
    size_t in_use = hands_.size();
    for (size_t i = 0; i < hands_.size(); ++i) {
      if (hands_[i].worker_id != worker) continue;
      if (in_use == hands_.size() || hands_[i].task.type() != v1::TRAINING) {
        in_use = i;
        if (hands_[i].task.type() != v1::TRAINING) break;
      }
    }
    InHand& hand = hands_[in_use];
    if (hand.task.type() != v1::TRAINING) {
      const auto done = tasks_->Done(now_, worker, hand.task.task_id());
      ASSERT_TRUE(done.ok() && *done) << done.status();
      EXPECT_FALSE(*tasks_->Done(now_, worker, hand.task.task_id()));
      hands_.erase(hands_.begin() + static_cast<int64_t>(in_use));
      return;
    }
    Train(hand);
    if (hand.at == hand.task.range().end()) {
      hands_.erase(hands_.begin() + static_cast<int64_t>(in_use));
    }
  }

  void Train(InHand& hand) {
    const v1::LedgerRange& range = hand.task.range();
    const int64_t end = std::min<int64_t>(
        range.end(), hand.at + options_.minibatch_size * Pick(1, 3));
    history_.push_back(
        {range.epoch(), range.shard(),
         ledger::RecordsOf(hand.task.shuffle_seed(), range.block_begin(),
                           range.block_end(), hand.at, end)});
    const auto committed =
        tasks_->Commit(now_, hand.worker_id, hand.task.task_id(), end);
    ASSERT_TRUE(committed.ok()) << committed.status();
    EXPECT_EQ(committed->begin, hand.at);
    EXPECT_EQ(committed->end, end);
    EXPECT_EQ(committed->shard, range.shard());
    const auto again =
        tasks_->Commit(now_, hand.worker_id, hand.task.task_id(), end);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->begin, again->end);
    hand.at = end;
    ASSERT_TRUE(tasks_->SetStep(++step_).ok());
  }

  void Trouble() {
    switch (Pick(0, 9)) {
      case 0:
        return CutBack();
      case 1:
        return Restart();
      case 2:
      case 3:
        return Lose(Pick(0, 3), WorkerLoss::kCrashed);
      case 4:
      case 5:
        return Succeed();
      default:
        Lose(Pick(0, 3),
             Chance(60) ? WorkerLoss::kCrashed : WorkerLoss::kPreempted);
    }
  }

  void Lose(int which, WorkerLoss loss) {
    const int64_t worker = live_[which];
    tasks_->WorkerLost(now_, worker, loss);
    live_[which] = next_worker_++;
    std::vector<InHand> left;
    for (const InHand& hand : hands_) {
      if (hand.worker_id != worker) {
        left.push_back(hand);
      } else {
        ExpectFenced(hand);
      }
    }
    hands_ = left;
  }

  // A worker that was given up must not get anything into the ledger.
  void ExpectFenced(const InHand& hand) {
    EXPECT_EQ(tasks_
                  ->Commit(now_, hand.worker_id, hand.task.task_id(),
                           hand.task.range().end())
                  .status()
                  .code(),
              kStale);
    EXPECT_FALSE(tasks_->Done(now_, hand.worker_id, hand.task.task_id()).ok());
  }

  // All workers are lost; the weights are those of some checkpoint.
  void CutBack() {
    for (int i = 0; i < 4; ++i) {
      Lose(i, Chance(50) ? WorkerLoss::kCrashed : WorkerLoss::kPreempted);
    }
    const Checkpoint& to = FallBack();
    const absl::Status status = tasks_->CutBack(now_, to.ledger);
    ASSERT_TRUE(status.ok()) << status;
    hands_.clear();
  }

  // A new master starts from some checkpoint, read back from its bytes.
  void Restart() {
    const Checkpoint& to = FallBack();
    v1::Ledger ledger;
    ASSERT_TRUE(ledger.ParseFromString(to.ledger.SerializeAsString()));
    tasks_.emplace(MakeTasks(options_));
    const absl::Status status = tasks_->Restore(ledger);
    ASSERT_TRUE(status.ok()) << status;
    hands_.clear();
    base_ = ledger;
    state_.reset();
    recorded_.clear();
    Watch();
  }

  void Watch() {
    tasks_->SetRecorder([this](const v1::TaskEvent& event) {
      recorded_.push_back(event.SerializeAsString());
    });
  }

  // As the controller does when it has told the result.
  void RecordEvaluation() {
    const auto evaluation = tasks_->evaluation();
    if (!evaluation.has_value() || !evaluation->complete) return;
    v1::TaskEvent event;
    event.set_evaluated(evaluation->version);
    if (!recorded_.empty() && recorded_.back() == event.SerializeAsString()) {
      return;
    }
    recorded_.push_back(event.SerializeAsString());
  }

  // The master dies; the next one has what was recorded, and the workers go on
  // with what they hold.
  void Succeed() {
    TaskManager next = MakeTasks(options_);
    if (base_.has_value()) {
      ASSERT_TRUE(next.Restore(*base_).ok());
    }
    if (state_.has_value()) {
      v1::TaskState state;
      ASSERT_TRUE(state.ParseFromString(*state_));
      const absl::Status loaded = next.LoadState(now_, state);
      ASSERT_TRUE(loaded.ok()) << loaded;
    }
    for (const std::string& bytes : recorded_) {
      v1::TaskEvent event;
      ASSERT_TRUE(event.ParseFromString(bytes));
      const auto applied = next.Apply(now_, event);
      ASSERT_TRUE(applied.ok()) << applied.status();
    }
    EXPECT_EQ(next.Snapshot().SerializeAsString(),
              tasks_->Snapshot().SerializeAsString());
    ExpectSameState(next.State(), tasks_->State());
    EXPECT_EQ(next.step(), tasks_->step());
    EXPECT_EQ(next.TrainingDone(), tasks_->TrainingDone());
    std::vector<InHand> left;
    for (const InHand& hand : hands_) {
      if (hand.task.type() != v1::EVALUATION) left.push_back(hand);
    }
    hands_ = left;
    for (const int64_t worker : live_) {
      ExpectSameHands(next, worker);
    }
    tasks_.emplace(std::move(next));
    Watch();
  }

  // The journal is replaced by what it has led to.
  void Shorten() {
    state_ = tasks_->State().SerializeAsString();
    recorded_.clear();
  }

  static void ExpectSameState(v1::TaskState a, v1::TaskState b) {
    // Evaluations take numbers and places among the last finished ones, too;
    // and one that has just ended may not be recorded yet.
    for (v1::TaskState* state : {&a, &b}) {
      state->clear_next_task_id();
      state->clear_finished();
      state->clear_evaluated_version();
    }
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(a, b))
        << a.DebugString() << "\nand\n"
        << b.DebugString();
  }

  // What a worker is told when nothing of its tasks had arrived is what it
  // holds.
  void ExpectSameHands(const TaskManager& next, int64_t worker) {
    const std::vector<v1::Task> held = next.HeldSince(worker, 0);
    size_t i = 0;
    for (const InHand& hand : hands_) {
      if (hand.worker_id != worker) continue;
      ASSERT_LT(i, held.size());
      EXPECT_EQ(held[i].task_id(), hand.task.task_id());
      EXPECT_EQ(held[i].shuffle_seed(), hand.task.shuffle_seed());
      EXPECT_EQ(held[i].range().begin(), hand.at);
      EXPECT_EQ(held[i].range().end(), hand.task.range().end());
      ++i;
    }
    EXPECT_EQ(i, held.size());
  }

  const Checkpoint& FallBack() {
    // The newest one mostly; an older one when that is torn.
    const int drop =
        Chance(80) ? 0 : Pick(0, static_cast<int>(checkpoints_.size()) - 1);
    checkpoints_.resize(checkpoints_.size() - drop);
    const Checkpoint& to = checkpoints_.back();
    history_.resize(to.history);
    step_ = to.step;
    return to;
  }

  void Verify() {
    std::map<Place, int> seen;
    int64_t trained = 0;
    for (const Trained& part : history_) {
      for (const int64_t record : part.records) {
        ++seen[{part.epoch, part.shard, record}];
        ++trained;
      }
    }
    const v1::Ledger ledger = tasks_->Snapshot();
    EXPECT_EQ(ledger.outstanding_size(), 0);
    int64_t bad = 0;
    for (const v1::LedgerRange& range : ledger.quarantined()) {
      const uint64_t seed =
          options_.shuffle
              ? ledger::BlockSeed(options_.seed, range.epoch(), range.shard(),
                                  range.block_begin())
              : 0;
      for (const int64_t record :
           ledger::RecordsOf(seed, range.block_begin(), range.block_end(),
                             range.begin(), range.end())) {
        ++seen[{range.epoch(), range.shard(), record}];
        ++bad;
      }
    }
    for (int32_t epoch = 0; epoch < options_.num_epochs; ++epoch) {
      for (const v1::LedgerShard& shard : options_.training_shards) {
        for (int64_t i = shard.begin(); i < shard.end(); ++i) {
          auto node = seen.extract(Place{epoch, shard.name(), i});
          ASSERT_FALSE(node.empty())
              << "lost: epoch " << epoch << " " << shard.name() << " " << i;
          ASSERT_EQ(node.mapped(), 1)
              << "epoch " << epoch << " " << shard.name() << " " << i;
        }
      }
    }
    EXPECT_TRUE(seen.empty());
    const TaskSummary summary = tasks_->Summary();
    EXPECT_EQ(summary.committed_records, trained);
    EXPECT_EQ(summary.committed_records + bad,
              tasks_->progress().total_records);
    EXPECT_EQ(summary.success, summary.quarantined.empty());
    EXPECT_TRUE(bad == 0 || !summary.success);
  }

  std::mt19937_64 random_;
  TaskManagerOptions options_;
  int trouble_ = 0;
  std::optional<TaskManager> tasks_;
  absl::Time now_ = At(0);
  int64_t step_ = 0;
  int64_t live_[4] = {1, 2, 3, 4};
  int64_t next_worker_ = 5;
  std::vector<InHand> hands_;
  // The journal: what the run began with, and the events since.
  std::optional<v1::Ledger> base_;
  std::optional<std::string> state_;
  std::vector<std::string> recorded_;
  std::vector<Trained> history_;
  std::vector<Checkpoint> checkpoints_;
};

class TaskScheduleTest : public ::testing::TestWithParam<int> {};

TEST_P(TaskScheduleTest, EveryRecordOnceOrSetAside) {
  for (int i = 0; i < kSeedsPerGroup; ++i) {
    const int seed = GetParam() * kSeedsPerGroup + i + 1;
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule(seed).Run();
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, TaskScheduleTest, ::testing::Range(0, kGroups));

}  // namespace
}  // namespace elasticdl::master
