// States that outlive their workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "master/job_controller_fixture.h"

namespace elasticdl::master {
namespace {

using testing::HasSubstr;

class FakeKeptStates : public KeptStates {
 public:
  void Keep(int64_t, pid_t, int) override {}
  std::vector<int64_t> Workers() const override {
    std::vector<int64_t> ids;
    for (const auto& [id, facts] : kept) ids.push_back(id);
    return ids;
  }
  bool HasEnded(int64_t worker_id) const override {
    return running.count(worker_id) == 0;
  }
  absl::StatusOr<Kept> Look(int64_t worker_id) const override {
    return Kept{worker_id, absl::StrCat("memory-", worker_id),
                kept.at(worker_id)};
  }
  void Drop(int64_t worker_id) override { kept.erase(worker_id); }

  std::map<int64_t, keep::Facts> kept;
  std::set<int64_t> running;
};

class KeptStatesTest : public JobControllerTest {
 protected:
  // One worker has reported step 1 with 10 records, and has died at step 3.
  void LoseWorker() {
    options_.kept_states = &states_;
    Start();
    Attach(1, 0);
    Commit(1, Tasks(1).at(0), 10);
    states_.kept[0] = {3, lineage_, 0.1, {{0, 30}}};
    states_.running = {0};
    controller_->OnClosed(now_, 1, absl::UnavailableError("stream broken"));
    id_of_.erase(1);
    prepared_.clear();
  }
  void EndWorker() {
    states_.running.clear();
    controller_->OnWorkerEnded(now_, 0, {false, "signal 9 (SIGKILL)"});
  }
  // A worker that does nothing when it is told to enter a world.
  void BeReady(ConnectionId connection, int64_t worker_id) {
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(worker_id);
    Say(connection, hello);
    v1::WorkerMessage ready;
    ready.mutable_ready();
    Say(connection, ready);
  }
  int64_t committed() { return controller_->progress().committed_records; }

  FakeKeptStates states_;
};

TEST_F(KeptStatesTest, TheNextWorkerGoesOnWithIt) {
  LoseWorker();
  Attach(2, 1);
  EXPECT_EQ(prepared_.count(2), 0u) << "the dead one may still write";
  EndWorker();
  EXPECT_EQ(committed(), 30);
  Form();
  EXPECT_EQ(prepared_[2].kept(), "memory-0");
  EXPECT_EQ(prepared_[2].cold_step(), 3);
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
  EXPECT_TRUE(states_.kept.empty());
  TrainAll(2);
  EXPECT_EQ(committed(), 100);
}

// Whoever crashes with it does so because of the model or the data, and counts.
TEST_F(KeptStatesTest, WhatTheJobBeganWithIsNotTakenOver) {
  options_.kept_states = &states_;
  Start();
  Attach(1, 0);
  states_.kept[0] = {0, lineage_, 0, {}};
  controller_->OnClosed(now_, 1, absl::UnavailableError("stream broken"));
  id_of_.erase(1);
  prepared_.clear();
  controller_->OnWorkerEnded(now_, 0, {true, "signal 11 (SIGSEGV)"});
  EXPECT_TRUE(states_.kept.empty());
  Attach(2, 1);
  ASSERT_EQ(prepared_.count(2), 1u);
  EXPECT_TRUE(prepared_[2].cold());
  EXPECT_EQ(prepared_[2].kept(), "");
  EXPECT_FALSE(controller_->BlamedOnOther(1));
  // Nothing was lost.
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
  EXPECT_THAT(output_.given_up, testing::IsEmpty());
  TrainAll(2);
  EXPECT_EQ(committed(), 100);
}

// It was trained, though nobody has heard of it yet.
TEST_F(KeptStatesTest, AStepThatWasNotReportedIsTakenOver) {
  options_.kept_states = &states_;
  Start();
  Attach(1, 0);
  states_.kept[0] = {1, lineage_, 0.1, {{0, 10}}};
  controller_->OnClosed(now_, 1, absl::UnavailableError("stream broken"));
  id_of_.erase(1);
  prepared_.clear();
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9 (SIGKILL)"});
  EXPECT_EQ(committed(), 10);
  Attach(2, 1);
  EXPECT_EQ(prepared_[2].kept(), "memory-0");
  TrainAll(2);
  EXPECT_EQ(committed(), 100);
}

// It may be stopped or wait for a disk: it is alive, and could go on writing.
TEST_F(KeptStatesTest, WhoHangsIsKilledFirst) {
  LoseWorker();
  Attach(2, 1);
  EXPECT_THAT(output_.killed, testing::IsEmpty());
  now_ = controller_->NextTimer();
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, testing::Contains(0));
  EXPECT_EQ(prepared_.count(2), 0u);
  EndWorker();
  EXPECT_EQ(committed(), 30);
  Form();
  EXPECT_EQ(prepared_[2].kept(), "memory-0");
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
  TrainAll(2);
  EXPECT_EQ(committed(), 100);
}

TEST_F(KeptStatesTest, WhoDoesNotEndInTimeDoesNotCount) {
  LoseWorker();
  Attach(2, 1);
  const absl::Time late = now_ + 2 * options_.end_grace;
  while (controller_->NextTimer() < late) {
    now_ = controller_->NextTimer();
    controller_->OnTimer(now_);
  }
  Form();
  EXPECT_EQ(prepared_[2].kept(), "");
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
  TrainAll(2);
  EXPECT_EQ(committed(), 100);
}

TEST_F(KeptStatesTest, AnotherLineageIsRefused) {
  LoseWorker();
  states_.kept[0].lineage = lineage_ + 1;
  EndWorker();
  Attach(2, 1);
  EXPECT_EQ(prepared_[2].kept(), "");
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
  EXPECT_THAT(output_.messages, testing::Contains(HasSubstr("cannot be used")));
}

// Two in a row that crash before they are level: nobody can begin with it.
TEST_F(KeptStatesTest, AStateThatCrashesItsHeirsIsGivenUp) {
  LoseWorker();
  EndWorker();
  for (int64_t id = 1; id <= 2; ++id) {
    const ConnectionId connection = static_cast<ConnectionId>(id) + 1;
    EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
    BeReady(connection, id);
    const auto prepares = output_.Take(connection, v1::MasterMessage::kPrepare);
    ASSERT_EQ(prepares.size(), 1u);
    EXPECT_EQ(prepares[0].prepare().kept(), "memory-0");
    controller_->OnClosed(now_, connection, absl::UnavailableError("broken"));
    controller_->OnWorkerEnded(now_, id, {true, "signal 11 (SIGSEGV)"});
    EXPECT_TRUE(controller_->BlamedOnOther(id));
  }
  Attach(4, 3);
  EXPECT_EQ(prepared_[4].kept(), "");
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
  EXPECT_THAT(output_.messages, testing::Contains(HasSubstr("took over")));
  EXPECT_THAT(output_.given_up, testing::ElementsAre(3));
  TrainAll(4);
  EXPECT_EQ(committed(), 100);
}

// They are level, but none of them comes to the next step. The first suspect is
// the data.
TEST_F(KeptStatesTest, AStateFromWhichNobodyGetsOnIsGivenUp) {
  LoseWorker();
  EndWorker();
  const int64_t most = options_.tasks.task_max_failures + 1;
  for (int64_t id = 1; id <= most; ++id) {
    const ConnectionId connection = static_cast<ConnectionId>(id) + 1;
    EXPECT_THAT(output_.cut_backs, testing::IsEmpty()) << id;
    Attach(connection, id);
    EXPECT_EQ(prepared_[connection].kept(), absl::StrCat("memory-", id - 1));
    states_.kept[id] = {3, lineage_, 0.1, {}};
    id_of_.erase(connection);
    controller_->OnClosed(now_, connection, absl::UnavailableError("broken"));
    controller_->OnWorkerEnded(now_, id, {true, "signal 11 (SIGSEGV)"});
  }
  EXPECT_THAT(output_.given_up, testing::ElementsAre(3));
  EXPECT_THAT(output_.messages,
              testing::Contains(HasSubstr("crashed before the next one")));
  Attach(90, 90);
  EXPECT_EQ(prepared_[90].kept(), "");
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
}

// The state goes on to be used when heirs are killed from outside.
TEST_F(KeptStatesTest, HeirsThatAreKilledDoNotCount) {
  LoseWorker();
  EndWorker();
  for (int64_t id = 1; id <= 5; ++id) {
    const ConnectionId connection = static_cast<ConnectionId>(id) + 1;
    BeReady(connection, id);
    controller_->OnClosed(now_, connection, absl::UnavailableError("broken"));
    controller_->OnWorkerEnded(now_, id, {false, "signal 9 (SIGKILL)"});
  }
  Attach(9, 6);
  EXPECT_EQ(prepared_[9].kept(), "memory-0");
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
}

TEST_F(KeptStatesTest, WhatCannotBeUsedIsRolledBack) {
  LoseWorker();
  EndWorker();
  BeReady(2, 1);
  const auto prepares = output_.Take(2, v1::MasterMessage::kPrepare);
  ASSERT_EQ(prepares.size(), 1u);
  EXPECT_EQ(prepares[0].prepare().kept(), "memory-0");
  v1::WorkerMessage failed;
  failed.mutable_world_failed()->set_generation(
      prepares[0].prepare().generation());
  failed.mutable_world_failed()->set_kept_unusable(true);
  id_of_[2] = 1;
  Say(2, failed);
  now_ += absl::Seconds(1);
  controller_->OnTimer(now_);
  Form();
  EXPECT_EQ(prepared_[2].kept(), "");
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
  TrainAll(2);
  EXPECT_EQ(committed(), 100);
}

}  // namespace
}  // namespace elasticdl::master
