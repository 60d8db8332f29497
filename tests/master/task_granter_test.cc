// Who gets which task, and how many.
#include "task_granter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "task_fixture.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Outbox : public WorkerPort {
 public:
  void Send(const std::vector<ConnectionId>& connections,
            v1::MasterMessage message) override {
    for (const ConnectionId connection : connections) {
      sent[connection].push_back(message.has_task()
                                     ? v1::TaskType_Name(message.task().type())
                                     : "no more");
    }
  }
  void SendToServer(int, v1::MasterMessage) override {}
  void Close(ConnectionId, const absl::Status&) override {}
  void KillWorker(int64_t, const std::string&) override {}

  std::map<ConnectionId, std::vector<std::string>> sent;
};

class TaskGranterTest : public ::testing::Test {
 protected:
  explicit TaskGranterTest(const TaskManagerOptions& options = TenTasks())
      : tasks_(MakeTasks(options)) {
    world_.training = true;
    world_.is_member = [](int64_t) { return true; };
  }
  static TaskManagerOptions TenTasks() {
    TaskManagerOptions options = SmallJob();
    options.training_shards = {MakeShard("a", 0, 400)};
    return options;
  }
  // Worker `id` on the stream 10 + id.
  Worker& Add(int64_t id) {
    Worker worker;
    worker.id = id;
    worker.ready = true;
    registry_.Add(10 + id, worker);
    world_.size = registry_.size();
    return *registry_.FindById(id);
  }
  std::vector<std::string> Grant(int64_t id) {
    granter_.Grant(At(0), world_);
    return std::exchange(outbox_.sent[10 + id], {});
  }

  TaskManager tasks_;
  WorkerRegistry registry_;
  CrashBlame blame_{3};
  Outbox outbox_;
  TaskGranter granter_{{/*window=*/2, /*global_batch_size=*/0,
                        /*worker_batch_size=*/0},
                       tasks_,
                       registry_,
                       blame_,
                       outbox_};
  TaskGranter::World world_;
};

TEST_F(TaskGranterTest, OneOfManyGetsItsTasks) {
  Add(0);
  Add(1);
  granter_.GrantOne(At(0), world_, 11);
  EXPECT_THAT(outbox_.sent[10], IsEmpty());
  EXPECT_THAT(outbox_.sent[11], ElementsAre("TRAINING", "TRAINING"));
  // It is gone.
  granter_.GrantOne(At(0), world_, 12);
  EXPECT_THAT(outbox_.sent[12], IsEmpty());
}

TEST_F(TaskGranterTest, AWorkerHoldsOneInUseAndOneReadAhead) {
  Add(0);
  EXPECT_THAT(Grant(0), ElementsAre("TRAINING", "TRAINING"));
  EXPECT_THAT(Grant(0), IsEmpty());
  ASSERT_TRUE(tasks_.CommitNext(At(1), 0, 40).ok());
  EXPECT_THAT(Grant(0), ElementsAre("TRAINING"));
}

TEST_F(TaskGranterTest, QuickTasksAreHandedOutFurtherAhead) {
  Add(0);
  // 100 ms are ten tasks of 40 records.
  granter_.OnCommit(At(-1), 0);
  granter_.OnCommit(At(0), 8000);
  const size_t held = Grant(0).size();
  EXPECT_GT(held, 2u);
  // But not those that another one could train.
  EXPECT_LE(held, 5u);
}

TEST_F(TaskGranterTest, OnlyMembersOfTheWorldGetTasks) {
  Add(0);
  Add(1);
  world_.is_member = [](int64_t id) { return id == 1; };
  granter_.Grant(At(0), world_);
  EXPECT_THAT(outbox_.sent[10], IsEmpty());
  EXPECT_THAT(outbox_.sent[11], ElementsAre("TRAINING", "TRAINING"));
}

TEST_F(TaskGranterTest, NobodyWhoLeavesOrStopsOrIsNotReadyGetsAny) {
  Add(0).leaving = true;
  Add(1).stop_sent = true;
  Add(2).ready = false;
  granter_.Grant(At(0), world_);
  for (const ConnectionId connection : {10, 11, 12}) {
    EXPECT_THAT(outbox_.sent[connection], IsEmpty());
  }
  // It may have asked before it knew that it leaves.
  registry_.FindById(0)->starving = true;
  EXPECT_THAT(Grant(0), ElementsAre("no more"));
  EXPECT_FALSE(registry_.FindById(0)->starving);
}

TEST_F(TaskGranterTest, WhoWaitsForAnEvaluationGetsNothingToTrain) {
  Add(0).waiting = true;
  // It is told so, once.
  EXPECT_THAT(Grant(0), ElementsAre("no more"));
  EXPECT_THAT(Grant(0), IsEmpty());
}

TEST_F(TaskGranterTest, AStarvingWorkerGetsOneMore) {
  Worker& worker = Add(0);
  EXPECT_THAT(Grant(0), ElementsAre("TRAINING", "TRAINING"));
  worker.starving = true;
  EXPECT_THAT(Grant(0), ElementsAre("TRAINING"));
  EXPECT_FALSE(worker.starving);
}

TEST_F(TaskGranterTest, AfterACrashOneAtATime) {
  Add(0);
  blame_.BeCareful(/*records_done=*/40, /*evaluating=*/false);
  EXPECT_THAT(Grant(0), ElementsAre("TRAINING", "no more"));
  registry_.FindById(0)->starving = true;
  registry_.FindById(0)->no_more_sent = false;
  EXPECT_THAT(Grant(0), ElementsAre("no more"));
  ASSERT_TRUE(tasks_.CommitNext(At(1), 0, 40).ok());
  EXPECT_THAT(Grant(0), ElementsAre("TRAINING", "TRAINING"));
}

TEST_F(TaskGranterTest, TasksAreDealtInTurn) {
  TaskManagerOptions options = SmallJob();  // Three tasks.
  tasks_ = MakeTasks(options);
  Add(0);
  Add(1);
  granter_.Grant(At(0), world_);
  EXPECT_EQ(tasks_.NumHeld(0, v1::TRAINING), 2);
  EXPECT_GE(tasks_.NumHeld(1, v1::TRAINING), 1);
}

class TrainEndTest : public TaskGranterTest {
 protected:
  TrainEndTest() : TaskGranterTest(Options()) {}
  static TaskManagerOptions Options() {
    TaskManagerOptions options = SmallJob();
    options.training_shards.clear();
    options.train_end_task = true;
    return options;
  }
};

TEST_F(TrainEndTest, WaitsForTheMembersAndTheLastCheckpoint) {
  Add(0).no_more_sent = true;
  EXPECT_THAT(Grant(0), IsEmpty());
  world_.at_rest = true;
  world_.last_checkpoint_due = true;
  EXPECT_THAT(Grant(0), IsEmpty());
  world_.last_checkpoint_due = false;
  EXPECT_THAT(Grant(0), ElementsAre("TRAIN_END_CALLBACK"));
}

}  // namespace
}  // namespace elasticdl::master
