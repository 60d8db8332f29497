#include "task_manager.h"

#include <gmock/gmock.h>

#include "task_fixture.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// All grants of one worker that commits each task at once.
std::vector<std::string> RunAlone(TaskManager& tasks, size_t limit = 1000) {
  std::vector<std::string> all;
  while (all.size() < limit) {
    const GrantResult grant = tasks.Grant(At(0), 1);
    all.push_back(Describe(grant));
    if (!grant.task.has_value()) break;
    const v1::Task& task = *grant.task;
    if (task.type() == v1::TRAINING) {
      EXPECT_TRUE(
          tasks.Commit(At(0), 1, task.task_id(), task.range().end()).ok());
    } else {
      EXPECT_TRUE(tasks.Done(At(0), 1, task.task_id()).value());
    }
  }
  return all;
}

v1::Task MustGrant(TaskManager& tasks, int64_t worker, double now = 0) {
  const GrantResult grant = tasks.Grant(At(now), worker);
  EXPECT_TRUE(grant.task.has_value()) << NoTaskName(grant.reason);
  return grant.task.value_or(v1::Task());
}

TEST(TaskManagerTest, HandsOutEveryBlockOfEveryEpochOnce) {
  TaskManagerOptions options = SmallJob();
  options.num_epochs = 2;
  options.training_shards = {MakeShard("b", 5, 15), MakeShard("a", 0, 50)};
  TaskManager tasks = MakeTasks(options);
  EXPECT_THAT(
      RunAlone(tasks),
      ElementsAre("TRAINING a 0-40 e0", "TRAINING a 40-50 e0",
                  "TRAINING b 5-15 e0", "TRAINING a 0-40 e1",
                  "TRAINING a 40-50 e1", "TRAINING b 5-15 e1", "all is done"));
  EXPECT_TRUE(tasks.Finished());
  EXPECT_TRUE(tasks.Summary().success);
  EXPECT_EQ(tasks.Summary().committed_records, 120);
  EXPECT_EQ(tasks.progress().total_records, 120);
}

TEST(TaskManagerTest, EndlessEpochsGoOn) {
  TaskManagerOptions options = SmallJob();
  options.num_epochs = 0;
  TaskManager tasks = MakeTasks(options);
  EXPECT_EQ(RunAlone(tasks, 31).back(), "TRAINING a 0-40 e10");
  EXPECT_EQ(tasks.progress().total_records, -1);
}

TEST(TaskManagerTest, CommitsAreIdempotentAndNeverGoBack) {
  TaskManager tasks = MakeTasks(SmallJob());
  const int64_t id = MustGrant(tasks, 7).task_id();
  const auto first = tasks.Commit(At(1), 7, id, 20);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->shard, "a");
  EXPECT_EQ(first->begin, 0);
  EXPECT_EQ(first->end, 20);
  EXPECT_EQ(first->worker_id, 7);
  const auto again = tasks.Commit(At(2), 7, id, 20);
  EXPECT_EQ(again->begin, again->end);
  EXPECT_EQ(tasks.Commit(At(2), 7, id, 10).status().code(), kStale);
  EXPECT_EQ(tasks.Commit(At(2), 7, id, 41).status().code(), kStale);
  EXPECT_EQ(tasks.Commit(At(2), 7, id, 40)->begin, 20);
  // The answer to the last commit may have been lost.
  const auto repeated = tasks.Commit(At(3), 7, id, 40);
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  EXPECT_EQ(repeated->begin, repeated->end);
  EXPECT_EQ(tasks.Commit(At(3), 7, id, 30).status().code(), kStale);
  EXPECT_EQ(tasks.progress().committed_records, 40);
}

TEST(TaskManagerTest, FencesOffLostWorkersAndForeignTasks) {
  TaskManager tasks = MakeTasks(SmallJob());
  const int64_t mine = MustGrant(tasks, 1).task_id();
  const int64_t other = MustGrant(tasks, 2).task_id();
  EXPECT_EQ(tasks.Commit(At(0), 1, other, 80).status().code(), kStale);
  EXPECT_EQ(tasks.Commit(At(0), 1, 99, 80).status().code(), kStale);
  EXPECT_EQ(tasks.Done(At(0), 1, mine).status().code(), kStale);
  EXPECT_EQ(tasks.WorkerLost(At(1), 1, WorkerLoss::kPreempted), 1);
  EXPECT_EQ(tasks.WorkerLost(At(1), 1, WorkerLoss::kPreempted), 0);
  EXPECT_EQ(tasks.Commit(At(1), 1, mine, 40).status().code(), kStale);
  EXPECT_EQ(tasks.progress().committed_records, 0);
}

TEST(TaskManagerTest, RestOfALostWorkersTasksComesFirstFromTheExactPosition) {
  TaskManager tasks = MakeTasks(SmallJob());
  const int64_t first = MustGrant(tasks, 1).task_id();
  MustGrant(tasks, 1);
  ASSERT_TRUE(tasks.Commit(At(0), 1, first, 30).ok());
  EXPECT_EQ(tasks.WorkerLost(At(1), 1, WorkerLoss::kCrashed, "signal 9"), 2);
  EXPECT_THAT(RunAlone(tasks),
              ElementsAre("TRAINING a 30-40 e0", "TRAINING a 40-80 e0",
                          "TRAINING a 80-100 e0", "all is done"));
  EXPECT_TRUE(tasks.Summary().success);
}

// Defect 1 of the original: three preemptions of whoever holds a task drop it.
TEST(TaskManagerTest, PreemptionsNeverLoseATask) {
  TaskManager tasks = MakeTasks(SmallJob());
  for (int worker = 1; worker <= 20; ++worker) {
    EXPECT_EQ(MustGrant(tasks, worker).range().begin(), 0);
    tasks.WorkerLost(At(worker), worker, WorkerLoss::kPreempted);
  }
  RunAlone(tasks);
  EXPECT_TRUE(tasks.Finished());
  EXPECT_TRUE(tasks.Summary().success);
  EXPECT_EQ(tasks.Summary().committed_records, 100);
}

TEST(TaskManagerTest, QuarantinesWhatKeepsCrashingAndSaysSo) {
  TaskManager tasks = MakeTasks(SmallJob());
  for (int worker = 2; worker <= 4; ++worker) {
    const v1::Task task = MustGrant(tasks, worker);
    const v1::Task ahead = MustGrant(tasks, worker);
    EXPECT_EQ(ahead.range().begin(), 40);
    ASSERT_TRUE(tasks.Commit(At(0), worker, task.task_id(), 10).ok());
    tasks.WorkerLost(At(0), worker, WorkerLoss::kCrashed, "signal 11");
  }
  // The task that was only read ahead is not to blame.
  EXPECT_THAT(RunAlone(tasks),
              ElementsAre("TRAINING a 40-80 e0", "TRAINING a 80-100 e0",
                          "all is done"));
  const TaskSummary summary = tasks.Summary();
  EXPECT_TRUE(summary.finished);
  EXPECT_FALSE(summary.success);
  EXPECT_EQ(summary.committed_records, 70);
  EXPECT_EQ(summary.quarantined_records, 30);
  ASSERT_EQ(summary.quarantined.size(), 1u);
  EXPECT_EQ(summary.quarantined[0].failures, 3);
  EXPECT_EQ(summary.quarantined[0].range.begin(), 10);
  EXPECT_EQ(summary.quarantined[0].range.end(), 40);
  EXPECT_THAT(summary.ToString(), HasSubstr("'a' 10-40"));
  EXPECT_THAT(summary.ToString(), HasSubstr("signal 11"));
}

TEST(TaskManagerTest, CrashesWithProgressBetweenThemAreNotTheTasksFault) {
  TaskManager tasks = MakeTasks(SmallJob());
  for (int worker = 2; worker <= 4; ++worker) {
    const v1::Task task = MustGrant(tasks, worker);
    const int64_t end = task.range().begin() + 10;
    ASSERT_TRUE(tasks.Commit(At(0), worker, task.task_id(), end).ok());
    tasks.WorkerLost(At(0), worker, WorkerLoss::kCrashed);
  }
  RunAlone(tasks);
  EXPECT_TRUE(tasks.Summary().success);
}

TEST(TaskManagerTest, FailedTasksAreTriedAgainThenQuarantined) {
  TaskManagerOptions options = SmallJob();
  options.task_max_failures = 2;
  TaskManager tasks = MakeTasks(options);
  const v1::Task task = MustGrant(tasks, 1);
  tasks.WorkerLost(At(0), 1, WorkerLoss::kCrashed, "bad record 3");
  EXPECT_TRUE(tasks.Summary().quarantined.empty());
  const v1::Task again = MustGrant(tasks, 1);
  EXPECT_EQ(again.range().begin(), 0);
  EXPECT_NE(again.task_id(), task.task_id());
  tasks.WorkerLost(At(0), 1, WorkerLoss::kCrashed, "bad record 3");
  ASSERT_EQ(tasks.Summary().quarantined.size(), 1u);
  EXPECT_EQ(MustGrant(tasks, 1).range().begin(), 40);
  EXPECT_EQ(tasks.Summary().quarantined[0].last_error,
            "worker 1 crashed: bad record 3");
}

TEST(TaskManagerTest, MaxStepEndsTrainingExactlyThere) {
  TaskManagerOptions options = SmallJob();
  options.max_step = 2;
  options.num_epochs = 0;
  options.train_end_task = true;
  TaskManager tasks = MakeTasks(options);
  const v1::Task one = MustGrant(tasks, 1);
  const v1::Task two = MustGrant(tasks, 2);
  ASSERT_TRUE(tasks.Commit(At(0), 1, one.task_id(), 10).ok());
  ASSERT_TRUE(tasks.SetStep(1).ok());
  EXPECT_FALSE(tasks.TrainingDone());
  ASSERT_TRUE(tasks.Commit(At(0), 1, one.task_id(), 20).ok());
  ASSERT_TRUE(tasks.SetStep(2).ok());
  EXPECT_TRUE(tasks.TrainingDone());
  // The other worker's share of the same step still counts.
  EXPECT_TRUE(tasks.Commit(At(0), 2, two.task_id(), 60).ok());
  EXPECT_TRUE(tasks.SetStep(2).ok());
  EXPECT_EQ(tasks.SetStep(3).code(), kStale);
  EXPECT_EQ(tasks.step(), 2);
  EXPECT_EQ(Describe(tasks.Grant(At(0), 1)), "TRAIN_END_CALLBACK");
  EXPECT_TRUE(*tasks.Done(At(0), 1, 3));
  EXPECT_TRUE(tasks.Finished());
  // Knowingly discarded is no failure; and the ledger still has it.
  EXPECT_TRUE(tasks.Summary().success);
  EXPECT_EQ(tasks.Summary().discarded_records, -1);
  EXPECT_THAT(tasks.Summary().stop_reason, HasSubstr("max_step 2"));
  options.max_step = 3;
  TaskManager longer = MakeTasks(options);
  ASSERT_TRUE(longer.Restore(tasks.Snapshot()).ok());
  EXPECT_EQ(Describe(longer.Grant(At(0), 1)), "TRAINING a 20-40 e0");
  EXPECT_EQ(Describe(longer.Grant(At(0), 1)), "TRAINING a 60-80 e0");
}

TEST(TaskManagerTest, HandsOutNoMoreMinibatchesThanMaxStepAllows) {
  TaskManagerOptions options = SmallJob();
  options.max_step = 7;
  options.minibatches_are_steps = true;
  options.num_epochs = 0;
  TaskManager tasks = MakeTasks(options);
  const v1::Task first = MustGrant(tasks, 1);
  EXPECT_EQ(first.range().end(), 40);
  // Three are left, for two workers.
  EXPECT_EQ(Describe(tasks.Grant(At(0), 2)), "TRAINING a 40-50 e0");
  EXPECT_EQ(Describe(tasks.Grant(At(0), 2)), "TRAINING a 50-60 e0");
  EXPECT_EQ(Describe(tasks.Grant(At(0), 1)), "TRAINING a 60-70 e0");
  EXPECT_EQ(tasks.Grant(At(0), 2).reason, NoTask::kWaitForOthers);
  // What a lost worker held is handed out again, and no more.
  ASSERT_TRUE(tasks.Commit(At(0), 1, first.task_id(), 30).ok());
  ASSERT_TRUE(tasks.SetStep(3).ok());
  tasks.WorkerLost(At(0), 1, WorkerLoss::kPreempted);
  EXPECT_EQ(Describe(tasks.Grant(At(0), 2)), "TRAINING a 30-40 e0");
  EXPECT_EQ(Describe(tasks.Grant(At(0), 2)), "TRAINING a 60-70 e0");
  EXPECT_EQ(tasks.Grant(At(0), 2).reason, NoTask::kWaitForOthers);
  ASSERT_TRUE(tasks.CommitNext(At(0), 2, 40).ok());
  ASSERT_TRUE(tasks.SetStep(7).ok());
  EXPECT_TRUE(tasks.Finished());
}

TEST(TaskManagerTest, DataThatEndsAtMaxStepIsNotStoppedEarly) {
  TaskManagerOptions options = SmallJob();
  options.max_step = 3;
  TaskManager tasks = MakeTasks(options);
  RunAlone(tasks);
  ASSERT_TRUE(tasks.SetStep(3).ok());
  EXPECT_EQ(tasks.Summary().stop_reason, "");
}

TEST(TaskManagerTest, StopTrainingCountsWhatIsLeft) {
  TaskManager tasks = MakeTasks(SmallJob());
  ASSERT_TRUE(tasks.Commit(At(0), 1, MustGrant(tasks, 1).task_id(), 40).ok());
  tasks.StopTraining("loss is good enough");
  EXPECT_TRUE(tasks.Finished());
  EXPECT_EQ(tasks.Summary().discarded_records, 60);
  EXPECT_EQ(Describe(tasks.Grant(At(0), 1)), "all is done");
}

TEST(TaskManagerTest, LimitIsThreeTimesTheLongestTaskButAtLeastFiveMinutes) {
  TaskManager tasks = MakeTasks(SmallJob());
  const v1::Task first = MustGrant(tasks, 1, 0);
  EXPECT_EQ(tasks.NextExpiry(), At(300));
  MustGrant(tasks, 1, 100);  // Read ahead: no sign of life.
  EXPECT_EQ(tasks.NextExpiry(), At(300));
  EXPECT_TRUE(tasks.Expire(At(299)).empty());
  const auto overdue = tasks.Expire(At(300));
  ASSERT_EQ(overdue.size(), 1u);
  EXPECT_EQ(overdue[0].worker_id, 1);
  EXPECT_EQ(overdue[0].task_id, first.task_id());
  // A commit is a sign of life; the task took 250 s in all.
  ASSERT_TRUE(tasks.Commit(At(150), 1, first.task_id(), 20).ok());
  EXPECT_EQ(tasks.NextExpiry(), At(450));
  ASSERT_TRUE(tasks.Commit(At(250), 1, first.task_id(), 40).ok());
  EXPECT_EQ(tasks.NextExpiry(), At(250 + 750));
  tasks.WorkerLost(At(1000), 1, WorkerLoss::kCrashed);
  EXPECT_EQ(tasks.NextExpiry(), absl::InfiniteFuture());
}

TEST(TaskManagerTest, TimeoutByFlag) {
  TaskManagerOptions options = SmallJob();
  options.task_timeout = absl::Seconds(5);
  TaskManager tasks = MakeTasks(options);
  MustGrant(tasks, 1, 10);
  EXPECT_TRUE(tasks.Expire(At(14)).empty());
  EXPECT_EQ(tasks.Expire(At(15)).size(), 1u);
}

TEST(TaskManagerTest, InfiniteTimeoutNeverExpires) {
  TaskManagerOptions options = SmallJob();
  options.task_timeout = absl::InfiniteDuration();
  TaskManager tasks = MakeTasks(options);
  MustGrant(tasks, 1, 10);
  EXPECT_EQ(tasks.NextExpiry(), absl::InfiniteFuture());
  EXPECT_TRUE(tasks.Expire(At(1e9)).empty());
}

TEST(TaskManagerTest, TrainingDoesNotExpireWhileOthersEvaluate) {
  TaskManagerOptions options = SmallJob();
  options.validation_shards = {MakeShard("v", 0, 40)};
  TaskManager tasks = MakeTasks(options);
  const v1::Task training = MustGrant(tasks, 1, 0);
  ASSERT_TRUE(tasks.StartEvaluation(5).ok());
  const v1::Task evaluation = MustGrant(tasks, 2, 10);
  EXPECT_EQ(evaluation.type(), v1::EVALUATION);
  EXPECT_EQ(tasks.NextExpiry(), At(310));
  EXPECT_EQ(tasks.Expire(At(400))[0].worker_id, 2);
  EXPECT_TRUE(*tasks.Done(At(400), 2, evaluation.task_id()));
  EXPECT_EQ(tasks.NextExpiry(), At(700));
  ASSERT_TRUE(tasks.Commit(At(401), 1, training.task_id(), 40).ok());
}

TEST(TaskManagerTest, TasksGetSmallerNearTheEnd) {
  TaskManagerOptions options = SmallJob();
  options.training_shards = {MakeShard("a", 0, 160)};
  TaskManager tasks = MakeTasks(options);
  for (int worker = 1; worker <= 2; ++worker) {
    tasks.Grant(At(0), worker, {false, true, true, true});
  }
  std::vector<int64_t> sizes;
  int64_t expected = 0;
  for (int64_t worker = 1;; worker = 3 - worker) {
    const GrantResult grant = tasks.Grant(At(0), worker);
    if (!grant.task.has_value()) break;
    const v1::LedgerRange& range = grant.task->range();
    EXPECT_EQ(range.begin(), expected);
    EXPECT_EQ(range.begin() % 10, 0);
    expected = range.end();
    sizes.push_back(range.end() - range.begin());
    ASSERT_TRUE(
        tasks.Commit(At(0), worker, grant.task->task_id(), range.end()).ok());
  }
  EXPECT_EQ(expected, 160);
  EXPECT_THAT(sizes, ElementsAre(40, 30, 10, 20, 20, 10, 10, 10, 10));
  EXPECT_TRUE(tasks.Finished());
}

TEST(TaskManagerTest, EvaluationGoesBeforeTrainingAndIsRedone) {
  TaskManagerOptions options = SmallJob();
  options.validation_shards = {MakeShard("v", 0, 60)};
  TaskManager tasks = MakeTasks(options);
  EXPECT_FALSE(tasks.evaluation().has_value());
  ASSERT_TRUE(tasks.StartEvaluation(12).ok());
  EXPECT_EQ(tasks.StartEvaluation(13).code(), kStale);
  const v1::Task one = MustGrant(tasks, 1);
  const v1::Task two = MustGrant(tasks, 2);
  EXPECT_EQ(one.model_version(), 12);
  EXPECT_EQ(Describe(tasks.Grant(At(0), 3, {false, true, false, false})),
            "all tasks are granted");
  EXPECT_TRUE(*tasks.Done(At(0), 1, one.task_id()));
  EXPECT_FALSE(*tasks.Done(At(0), 1, one.task_id()));
  tasks.WorkerLost(At(0), 1, WorkerLoss::kCrashed);
  tasks.WorkerLost(At(0), 2, WorkerLoss::kCrashed);
  const GrantResult again = tasks.Grant(At(0), 3);
  EXPECT_EQ(Describe(again), "EVALUATION v 40-60 e0");
  EXPECT_TRUE(tasks.EvaluationRunning());
  EXPECT_TRUE(*tasks.Done(At(0), 3, again.task->task_id()));
  EXPECT_FALSE(tasks.EvaluationRunning());
  EXPECT_TRUE(tasks.evaluation()->complete);
  EXPECT_EQ(tasks.evaluation()->done_records, 60);
  EXPECT_TRUE(tasks.StartEvaluation(13).ok());
}

TEST(TaskManagerTest, AFailingEvaluationRangeIsSkippedAndReported) {
  TaskManagerOptions options = SmallJob();
  options.validation_shards = {MakeShard("v", 0, 40)};
  options.task_max_failures = 1;
  TaskManager tasks = MakeTasks(options);
  ASSERT_TRUE(tasks.StartEvaluation(1).ok());
  MustGrant(tasks, 1);
  tasks.WorkerLost(At(0), 1, WorkerLoss::kCrashed, "nan");
  EXPECT_TRUE(tasks.evaluation()->complete);
  EXPECT_EQ(tasks.evaluation()->skipped_records, 40);
  RunAlone(tasks);
  EXPECT_TRUE(tasks.Finished());
  EXPECT_FALSE(tasks.Summary().success);
}

TEST(TaskManagerTest, PredictsEveryRangeOnce) {
  TaskManagerOptions options = SmallJob();
  options.training_shards.clear();
  options.prediction_shards = {MakeShard("p", 0, 90)};
  TaskManager tasks = MakeTasks(options);
  const v1::Task lost = MustGrant(tasks, 1);
  tasks.WorkerLost(At(0), 1, WorkerLoss::kPreempted);
  EXPECT_EQ(tasks.Done(At(0), 1, lost.task_id()).status().code(), kStale);
  EXPECT_THAT(RunAlone(tasks),
              ElementsAre("PREDICTION p 0-40 e0", "PREDICTION p 40-80 e0",
                          "PREDICTION p 80-90 e0", "all is done"));
  EXPECT_EQ(tasks.Summary().predicted_records, 90);
}

TEST(TaskManagerTest, EvaluationOnlyJobIsFinishedByOneEvaluation) {
  TaskManagerOptions options = SmallJob();
  options.training_shards.clear();
  options.validation_shards = {MakeShard("v", 0, 40)};
  options.final_evaluation = true;
  TaskManager tasks = MakeTasks(options);
  EXPECT_FALSE(tasks.Finished());
  EXPECT_TRUE(tasks.FinalEvaluationDue());
  ASSERT_TRUE(tasks.StartEvaluation(500).ok());
  RunAlone(tasks);
  EXPECT_TRUE(tasks.Finished());
}

// Defect 6 of the original: a worker that waits for the train-end task drops a
// training task that comes back, and the export never happens.
TEST(TaskManagerTest, TrainEndComesOnceAfterAllThatCameBack) {
  TaskManagerOptions options = SmallJob();
  options.training_shards = {MakeShard("a", 0, 80)};
  options.validation_shards = {MakeShard("v", 0, 40)};
  options.final_evaluation = true;
  options.train_end_task = true;
  TaskManager tasks = MakeTasks(options);
  tasks.Grant(At(0), 2, {false, false, false, false});
  std::vector<v1::Task> of_one;
  while (auto task = tasks.Grant(At(0), 1).task) of_one.push_back(*task);
  EXPECT_EQ(Describe(tasks.Grant(At(0), 2)), "all tasks are granted");
  tasks.WorkerLost(At(0), 1, WorkerLoss::kCrashed);
  // The one that waited gets the training that came back, not the train end.
  for (size_t i = 0; i < of_one.size(); ++i) {
    const GrantResult grant = tasks.Grant(At(0), 2);
    ASSERT_EQ(grant.task->type(), v1::TRAINING);
    ASSERT_TRUE(
        tasks.Commit(At(0), 2, grant.task->task_id(), grant.task->range().end())
            .ok());
  }
  ASSERT_TRUE(tasks.SetStep(8).ok());
  // The last version is evaluated first.
  EXPECT_EQ(Describe(tasks.Grant(At(0), 2)), "training is done");
  EXPECT_TRUE(tasks.FinalEvaluationDue());
  ASSERT_TRUE(tasks.StartEvaluation(8).ok());
  const v1::Task evaluation = MustGrant(tasks, 2);
  EXPECT_EQ(Describe(tasks.Grant(At(0), 3)), "all tasks are granted");
  EXPECT_TRUE(*tasks.Done(At(0), 2, evaluation.task_id()));
  // Exactly one train end; another worker's death gives it to the next.
  EXPECT_EQ(MustGrant(tasks, 2).type(), v1::TRAIN_END_CALLBACK);
  EXPECT_EQ(Describe(tasks.Grant(At(0), 3)), "all tasks are granted");
  EXPECT_FALSE(tasks.Finished());
  tasks.WorkerLost(At(0), 2, WorkerLoss::kCrashed);
  const v1::Task end = MustGrant(tasks, 3);
  EXPECT_EQ(end.type(), v1::TRAIN_END_CALLBACK);
  EXPECT_TRUE(*tasks.Done(At(0), 3, end.task_id()));
  EXPECT_TRUE(tasks.Finished());
  EXPECT_EQ(Describe(tasks.Grant(At(0), 3)), "all is done");
  EXPECT_TRUE(tasks.Summary().success);
}

TEST(TaskManagerTest, AFailingTrainEndFailsTheJob) {
  TaskManagerOptions options = SmallJob();
  options.training_shards.clear();
  options.train_end_task = true;
  TaskManager tasks = MakeTasks(options);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(tasks.Finished());
    MustGrant(tasks, 1);
    tasks.WorkerLost(At(0), 1, WorkerLoss::kCrashed, "disk full");
  }
  EXPECT_TRUE(tasks.Finished());
  EXPECT_FALSE(tasks.Summary().success);
  EXPECT_THAT(tasks.Summary().ToString(), HasSubstr("disk full"));
}

// Defect 20 of the original: shards in the order of os.listdir, no seed.
TEST(TaskManagerTest, OrderDependsOnDataAndSeedAlone) {
  TaskManagerOptions options = SmallJob();
  options.shuffle = true;
  options.seed = 3;
  options.num_epochs = 2;
  options.training_shards = {MakeShard("a", 0, 100), MakeShard("b", 0, 90),
                             MakeShard("c", 0, 80)};
  const auto grants = [&options] {
    TaskManager tasks = MakeTasks(options);
    return RunAlone(tasks);
  };
  const std::vector<std::string> order = grants();
  std::swap(options.training_shards[0], options.training_shards[2]);
  EXPECT_EQ(grants(), order);
  options.seed = 4;
  EXPECT_NE(grants(), order);
}

TEST(TaskManagerTest, ShuffledTasksCarryTheSeedOfTheirBlock) {
  TaskManagerOptions options = SmallJob();
  EXPECT_EQ(MakeTasks(options).Grant(At(0), 1).task->shuffle_seed(), 0u);
  options.shuffle = true;
  TaskManager tasks = MakeTasks(options);
  const v1::Task one = MustGrant(tasks, 1);
  EXPECT_NE(one.shuffle_seed(), 0u);
  EXPECT_NE(one.shuffle_seed(), MustGrant(tasks, 1).shuffle_seed());
  // The rest of a block keeps its order.
  ASSERT_TRUE(
      tasks.Commit(At(0), 1, one.task_id(), one.range().begin() + 10).ok());
  tasks.WorkerLost(At(0), 1, WorkerLoss::kPreempted);
  const v1::Task rest = MustGrant(tasks, 2);
  EXPECT_EQ(rest.shuffle_seed(), one.shuffle_seed());
  EXPECT_EQ(rest.range().begin(), one.range().begin() + 10);
  EXPECT_EQ(rest.range().block_begin(), one.range().block_begin());
}

TEST(TaskManagerTest, RestoreContinuesWhereTheSnapshotWasTaken) {
  TaskManagerOptions options = SmallJob();
  options.num_epochs = 2;
  TaskManager tasks = MakeTasks(options);
  const v1::Task one = MustGrant(tasks, 1);
  MustGrant(tasks, 1);
  ASSERT_TRUE(tasks.Commit(At(0), 1, one.task_id(), 20).ok());
  ASSERT_TRUE(tasks.SetStep(2).ok());
  const v1::Ledger ledger = tasks.Snapshot();
  TaskManager next = MakeTasks(options);
  ASSERT_TRUE(next.Restore(ledger).ok());
  EXPECT_EQ(next.Snapshot().SerializeAsString(), ledger.SerializeAsString());
  EXPECT_EQ(next.step(), 2);
  EXPECT_THAT(RunAlone(next),
              ElementsAre("TRAINING a 20-40 e0", "TRAINING a 40-80 e0",
                          "TRAINING a 80-100 e0", "TRAINING a 0-40 e1",
                          "TRAINING a 40-80 e1", "TRAINING a 80-100 e1",
                          "all is done"));
  EXPECT_EQ(next.Summary().committed_records, 200);
  EXPECT_EQ(next.Restore(ledger).code(), kStale);
}

TEST(TaskManagerTest, AFinishedLedgerGoesOnWithMoreEpochs) {
  TaskManagerOptions options = SmallJob();
  TaskManager tasks = MakeTasks(options);
  RunAlone(tasks);
  options.num_epochs = 2;
  TaskManager more = MakeTasks(options);
  ASSERT_TRUE(more.Restore(tasks.Snapshot()).ok());
  EXPECT_EQ(Describe(more.Grant(At(0), 1)), "TRAINING a 0-40 e1");
}

TEST(TaskManagerTest, RestoreRefusesOtherDataAndNamesTheDifference) {
  TaskManagerOptions options = SmallJob();
  options.shuffle = true;
  options.seed = 1;
  const v1::Ledger ledger = MakeTasks(options).Snapshot();
  const auto refuse = [&ledger](const TaskManagerOptions& other,
                                const std::string& what) {
    const absl::Status status = MakeTasks(other).Restore(ledger);
    EXPECT_EQ(status.code(), kStale);
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  };
  TaskManagerOptions other = options;
  other.training_shards[0].set_end(99);
  refuse(other, "'a' [0, 100)");
  other.training_shards.push_back(MakeShard("b", 0, 1));
  refuse(other, "number of shards");
  other = options;
  other.num_minibatches_per_task = 5;
  refuse(other, "40 there and 50 here");
  other = options;
  other.seed = 2;
  refuse(other, "seed");
  other.shuffle = false;
  refuse(other, "shuffling is on there and off here");
}

TEST(TaskManagerTest, RestoreRefusesImpossibleLedgers) {
  TaskManager tasks = MakeTasks(SmallJob());
  MustGrant(tasks, 1);
  const v1::Ledger good = tasks.Snapshot();
  std::vector<v1::Ledger> bad(7, good);
  bad[0].set_next_block(4);
  bad[1].set_epoch(-1);
  bad[2].mutable_outstanding(0)->set_end(50);
  *bad[3].add_outstanding() = good.outstanding(0);
  *bad[4].add_quarantined() = good.outstanding(0);
  bad[5].set_committed_records(1);
  bad[6].set_next_block(0);
  for (const v1::Ledger& ledger : bad) {
    EXPECT_EQ(MakeTasks(SmallJob()).Restore(ledger).code(),
              absl::StatusCode::kDataLoss);
  }
  EXPECT_TRUE(MakeTasks(SmallJob()).Restore(good).ok());
}

TEST(TaskManagerTest, CutBackMakesEverythingAfterTheLedgerDueAgain) {
  TaskManagerOptions options = SmallJob();
  options.validation_shards = {MakeShard("v", 0, 40)};
  TaskManager tasks = MakeTasks(options);
  const v1::Task one = MustGrant(tasks, 1);
  ASSERT_TRUE(tasks.Commit(At(0), 1, one.task_id(), 10).ok());
  ASSERT_TRUE(tasks.SetStep(1).ok());
  const v1::Ledger ledger = tasks.Snapshot();
  ASSERT_TRUE(tasks.Commit(At(0), 1, one.task_id(), 40).ok());
  const v1::Task two = MustGrant(tasks, 1);
  ASSERT_TRUE(tasks.Commit(At(0), 1, two.task_id(), 60).ok());
  ASSERT_TRUE(tasks.SetStep(6).ok());
  ASSERT_TRUE(tasks.StartEvaluation(6).ok());
  ASSERT_TRUE(tasks.CutBack(At(0), ledger).ok());
  EXPECT_FALSE(tasks.EvaluationRunning());
  EXPECT_EQ(tasks.step(), 1);
  EXPECT_EQ(tasks.Commit(At(0), 1, two.task_id(), 80).status().code(), kStale);
  EXPECT_EQ(tasks.Commit(At(0), 1, one.task_id(), 40).status().code(), kStale);
  EXPECT_THAT(RunAlone(tasks),
              ElementsAre("TRAINING a 10-40 e0", "TRAINING a 40-80 e0",
                          "TRAINING a 80-100 e0", "all is done"));
  EXPECT_EQ(tasks.Summary().committed_records, 100);
}

// A record that kills all workers at once must not do so for ever.
TEST(TaskManagerTest, FailuresAreRememberedOverCutBacks) {
  TaskManager tasks = MakeTasks(SmallJob());
  const v1::Ledger start = tasks.Snapshot();
  int losses = 0;
  while (!tasks.Finished()) {
    const v1::Task task = MustGrant(tasks, 1);
    if (task.range().begin() == 40) {
      tasks.WorkerLost(At(0), 1, WorkerLoss::kCrashed);
      ASSERT_TRUE(tasks.CutBack(At(0), start).ok());
      ASSERT_LE(++losses, 3);
      continue;
    }
    ASSERT_TRUE(
        tasks.Commit(At(0), 1, task.task_id(), task.range().end()).ok());
  }
  EXPECT_EQ(losses, 3);
  EXPECT_EQ(tasks.Summary().committed_records, 60);
  EXPECT_EQ(tasks.Summary().quarantined_records, 40);
  // The next run of the job knows it from the ledger.
  TaskManager next = MakeTasks(SmallJob());
  ASSERT_TRUE(next.Restore(tasks.Snapshot()).ok());
  EXPECT_TRUE(next.Finished());
  EXPECT_FALSE(next.Summary().success);
  EXPECT_EQ(next.Summary().quarantined_records, 40);
}

TEST(TaskManagerTest, CutBackRefusesLaterSteps) {
  TaskManager tasks = MakeTasks(SmallJob());
  v1::Ledger ledger = tasks.Snapshot();
  ledger.set_step(5);
  EXPECT_EQ(tasks.CutBack(At(0), ledger).code(), kStale);
}

TEST(TaskManagerTest, RefusesBadOptions) {
  const auto refused = [](auto change) {
    TaskManagerOptions options = SmallJob();
    change(options);
    const absl::Status status =
        TaskManager::Create(std::move(options)).status();
    return status.code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](auto& o) { o.minibatch_size = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.num_minibatches_per_task = -1; }));
  EXPECT_TRUE(refused([](auto& o) { o.minibatch_size = int64_t{1} << 40; }));
  EXPECT_TRUE(refused([](auto& o) { o.max_step = -1; }));
  EXPECT_TRUE(refused([](auto& o) { o.task_max_failures = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.task_timeout = -absl::Seconds(1); }));
  EXPECT_TRUE(refused([](auto& o) { o.final_evaluation = true; }));
  EXPECT_FALSE(refused([](auto&) {}));
}

}  // namespace
}  // namespace elasticdl::master
