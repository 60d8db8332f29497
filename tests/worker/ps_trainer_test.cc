// A worker that trains with parameter servers; the test is its master.
#include "ps_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/thread.h"
#include "ps_worker.h"

namespace elasticdl::worker::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PsTrainerTest : public testing::Test {
 protected:
  ~PsTrainerTest() override { ExpectOk(InitFailpoints("")); }
  void Make(v1::JobSpec job, const PsWorkerOptions& options = {}) {
    worker_ =
        std::make_unique<PsWorker>(servers_, model_, std::move(job), options);
  }
  OtherWorker& other() {
    if (other_ == nullptr) {
      other_ = std::make_unique<OtherWorker>(
          servers_, MakeServedDefinition(*worker_->replica));
    }
    return *other_;
  }
  void Run() { ExpectOk(worker_->Run()); }
  // Each of the first records was trained on once, in minibatches of 4.
  void ExpectTrained(int64_t records) {
    EXPECT_EQ(worker_->records(), records);
    EXPECT_EQ(other().Weight(), static_cast<float>(records) / 4);
    EXPECT_EQ(other().Version(), records / 4);
    for (int64_t id = 0; id < records; ++id) {
      EXPECT_THAT(other().Row(id), Each(0.25)) << id;
    }
  }

  ServedModel model_;
  PsServers servers_{2};
  std::unique_ptr<PsWorker> worker_;
  std::unique_ptr<OtherWorker> other_;
};

// ---- asynchronous ----

class PsTrainerAsyncTest : public PsTrainerTest,
                           public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override { Make(MakeJob(/*async=*/true, GetParam())); }
  bool overlap() const { return GetParam(); }
};

TEST_P(PsTrainerAsyncTest, TrainsEachMinibatchOnce) {
  worker_->Give(0, 16);
  worker_->Give(16, 18);
  Run();
  EXPECT_THAT(model_.seen, overlap() ? ElementsAre(0, 0, 1, 2, 3)
                                     : ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(worker_->records(), 18);
  EXPECT_EQ(other().Weight(), 5);
  EXPECT_THAT(other().Row(3), Each(0.25));
  EXPECT_THAT(other().Row(17), Each(0.5));
  const v1::Progress& progress = worker_->Last(Said::kProgress).progress();
  // The output was twice what it has seen.
  EXPECT_EQ(progress.loss(), overlap() ? -6 : -8);
  EXPECT_EQ(progress.learning_rate(), 1);
  EXPECT_EQ(progress.totals(0).worker_id(), 0);
}

TEST_P(PsTrainerAsyncTest, APushForAnOldMapIsMadeAgain) {
  model_.before_forward = [this] { servers_.RenewMap(); };
  worker_->Give(0, 16);
  Run();
  ExpectTrained(16);
}

TEST_P(PsTrainerAsyncTest, TrainsOnWhileBucketsMoveToAnotherServer) {
  worker_->Give(0, 4);
  Run();
  model_.before_forward = [this] {
    servers_.Start(2);
    worker_->TellAddresses();
    servers_.MoveTo(3);
  };
  worker_->Give(4, 20);
  Run();
  ExpectTrained(20);
}

TEST_P(PsTrainerAsyncTest, WaitsForAServerThatComesBackElsewhere) {
  Thread starter;
  model_.before_forward = [&] {
    servers_.End(1);
    starter = Thread("starter", [this] {
      servers_.Start(1);
      worker_->TellAddresses();
    });
  };
  worker_->Give(0, 16);
  Run();
  starter.Join();
  ExpectTrained(16);
}

// Somebody else trains on the same records, because the master gave them to
// both.
TEST_P(PsTrainerAsyncTest, AMinibatchThatIsInTheModelIsNotAddedAgain) {
  worker_->Give(0, 8);
  Run();
  ServedModel model;
  PsWorker again(servers_, model, worker_->job, {/*id=*/1, "", false});
  again.Give(0, 16);
  ExpectOk(again.Run());
  EXPECT_EQ(again.records(), 16);
  EXPECT_EQ(other().Weight(), 4);
  EXPECT_THAT(other().Row(0), Each(0.25));
}

TEST_P(PsTrainerAsyncTest, StopEndsAWaitForAServer) {
  Thread stopper;
  model_.before_forward = [&] {
    servers_.End(0);
    worker_->TellAddresses();
    stopper = Thread("stopper", [this] {
      v1::MasterMessage stop;
      stop.mutable_stop();
      worker_->Tell(stop);
    });
  };
  worker_->Give(0, 16);
  Run();
  stopper.Join();
  EXPECT_EQ(worker_->records(), 0);
  EXPECT_FALSE(worker_->trainer->HasWork());
}

TEST_P(PsTrainerAsyncTest, PausedItHasNothingUnderWay) {
  worker_->Give(0, 8);
  v1::MasterMessage pause;
  pause.mutable_pause()->set_number(7);
  model_.before_forward = [&] { worker_->Tell(pause); };
  // The pause is handled after the first minibatch.
  Run();
  EXPECT_EQ(worker_->Last(Said::kPaused).paused().number(), 7);
  EXPECT_EQ(worker_->sent.back().message_case(), Said::kPaused);
  EXPECT_FALSE(worker_->trainer->HasWork());
  ExpectTrained(4);
  v1::MasterMessage resume;
  resume.mutable_resume();
  worker_->Tell(resume);
  Run();
  ExpectTrained(8);
}

TEST_P(PsTrainerAsyncTest, ANewMasterKnowsOfNoPauseAndHearsTheTotalsAgain) {
  worker_->Give(0, 4);
  Run();
  v1::MasterMessage pause;
  pause.mutable_pause();
  worker_->Tell(pause);
  Run();
  worker_->sent.clear();
  worker_->Give(4, 8);
  worker_->Happen(Event::Kind::kMasterBack);
  Run();
  EXPECT_EQ(worker_->sent.at(0).progress().totals(0).records(), 4);
  ExpectTrained(8);
}

TEST_P(PsTrainerAsyncTest, LeavesWhenItsLastPushHasArrived) {
  worker_->Give(0, 8);
  model_.before_forward = [this] { worker_->Happen(Event::Kind::kLeave); };
  Run();
  ASSERT_GE(worker_->sent.size(), 2u);
  EXPECT_EQ(worker_->sent.back().message_case(), Said::kLeaving);
  EXPECT_FALSE(worker_->trainer->HasWork());
  ExpectTrained(4);
}

TEST_P(PsTrainerAsyncTest, WhenTrainingIsDoneTheRestIsDropped) {
  v1::MasterMessage done;
  done.mutable_training_done();
  model_.before_forward = [&] { worker_->Tell(done); };
  worker_->Give(0, 16);
  Run();
  EXPECT_EQ(worker_->Count(Said::kIdle), 1);
  ExpectTrained(4);
  // A new master is told again.
  worker_->Happen(Event::Kind::kMasterBack);
  Run();
  EXPECT_EQ(worker_->Count(Said::kIdle), 2);
}

TEST_P(PsTrainerAsyncTest, AnErrorOfTheModelNamesTheRecords) {
  model_.loss_status = absl::InvalidArgumentError("no such label");
  worker_->Give(4, 8);
  const absl::Status status = worker_->Run();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("training on records 4 to 8 of shard-0"));
  EXPECT_EQ(other().Version(), 0);
}

// The worker ends with it, and somebody else gets its records.
TEST_P(PsTrainerAsyncTest, RecordsOfAFailedPushAreNotReported) {
  ExpectOk(InitFailpoints("worker.pushed=error@1x1"));
  worker_->Give(0, 4);
  EXPECT_TRUE(absl::IsUnavailable(worker_->Run()));
  EXPECT_EQ(worker_->records(), 0);
}

INSTANTIATE_TEST_SUITE_P(Overlap, PsTrainerAsyncTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "On" : "Off";
                         });

TEST_F(PsTrainerTest, BetweenPullsItFollowsItsOwnUpdates) {
  v1::JobSpec job = MakeJob(/*async=*/true);
  job.set_get_model_steps(3);
  Make(job);
  worker_->Give(0, 4);
  Run();
  other().Add(10);
  worker_->Give(4, 20);
  Run();
  // The fourth pulls what the other worker has added, the last does not.
  EXPECT_THAT(model_.seen, ElementsAre(0, 1, 2, 13, 14));
  EXPECT_EQ(other().Weight(), 15);
}

TEST_F(PsTrainerTest, WithOverlapAPullThatIsDueSeesAllOwnUpdates) {
  v1::JobSpec job = MakeJob(/*async=*/true, /*overlap=*/true);
  job.set_get_model_steps(3);
  Make(job);
  worker_->Give(0, 28);
  Run();
  EXPECT_THAT(model_.seen, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  ExpectTrained(28);
}

TEST_F(PsTrainerTest, ServersThatHaveLostTheirLogsGetTheModelAgain) {
  PsServers servers(2, /*logs=*/false);
  PsWorker worker(servers, model_, MakeJob(/*async=*/true));
  worker.Give(0, 4);
  ExpectOk(worker.Run());
  for (const int server : {0, 1}) {
    servers.End(server);
    servers.Start(server);
  }
  worker.TellAddresses();
  worker.Give(4, 8);
  ExpectOk(worker.Run());
  // From the values that the worker has pulled last.
  EXPECT_THAT(model_.seen, ElementsAre(0, 0));
  OtherWorker other(servers, MakeServedDefinition(*worker.replica));
  EXPECT_EQ(other.Weight(), 1);
  EXPECT_EQ(other.Version(), 1);
}

TEST_F(PsTrainerTest, OneWorkerGivesTheModelAndTheOthersWaitForIt) {
  Make(MakeJob(/*async=*/true));
  ServedModel model;
  PsWorker waiting(servers_, model, worker_->job,
                   {/*id=*/1, /*restore_from=*/"", /*await_model=*/true});
  waiting.Give(4, 8);
  Thread waiter("waiter", [&] { ExpectOk(waiting.Run()); });
  worker_->Give(0, 4);
  Run();
  waiter.Join();
  EXPECT_EQ(waiting.records(), 4);
  EXPECT_EQ(other().Weight(), 2);
}

TEST_F(PsTrainerTest, NewServersGetTheCheckpoint) {
  elasticdl::test::TempDir dir;
  const auto saved = MakeServedReplica(model_);
  saved->parameters().values()[0] = 5;
  auto snapshot = saved->ViewWithoutSlots();
  ASSERT_TRUE(snapshot.ok());
  snapshot->version = snapshot->optimizer_step = 7;
  const auto path = checkpoint::Save(dir.path(), *snapshot);
  ASSERT_TRUE(path.ok()) << path.status();
  Make(MakeJob(/*async=*/true), {/*id=*/0, *path});
  worker_->Give(0, 4);
  Run();
  EXPECT_THAT(model_.seen, ElementsAre(5));
  EXPECT_EQ(worker_->replica->step(), 7);
  EXPECT_THAT(other().Dense(), ElementsAre(6, 1));
  EXPECT_EQ(other().Version(), 8);
}

class HalfTheRate : public Callback {
 public:
  void on_train_batch_begin(int64_t step) override {
    SetLearningRate(0.5);
    if (step == 2) StopTraining("that is enough");
  }
};

TEST_F(PsTrainerTest, CallbacksDecideTheRateAndTheEnd) {
  model_.callbacks = {std::make_shared<HalfTheRate>()};
  Make(MakeJob(/*async=*/true));
  worker_->Give(0, 12);
  Run();
  EXPECT_EQ(other().Weight(), 1.5);
  EXPECT_EQ(worker_->Last(Said::kProgress).progress().learning_rate(), 0.5);
  // The master decides when it is over.
  EXPECT_EQ(worker_->Count(Said::kStopTraining), 1);
  EXPECT_EQ(worker_->Last(Said::kStopTraining).stop_training().reason(),
            "that is enough");
}

TEST_F(PsTrainerTest, SavesWhenTheMasterAsks) {
  elasticdl::test::TempDir dir;
  v1::JobSpec job = MakeJob(/*async=*/true, /*overlap=*/true);
  job.set_checkpoint_dir(dir.path());
  Make(job);
  worker_->Give(0, 8);
  Run();
  v1::MasterMessage save;
  save.mutable_save_now()->set_step(2);
  worker_->Tell(save);
  Run();
  EXPECT_EQ(worker_->Last(Said::kCheckpointBegin).checkpoint_begin().step(), 2);
  v1::MasterMessage ledger;
  ledger.mutable_ledger()->set_step(2);
  ledger.mutable_ledger()->mutable_ledger()->set_committed_records(8);
  worker_->Tell(ledger);
  Run();
  ASSERT_EQ(worker_->environment.saves.size(), 1u);
  EXPECT_EQ(worker_->environment.saves[0].snapshot.snapshot.version, 2);
}

// It had no data yet, and so did not know the servers' parts.
TEST_F(PsTrainerTest, AWorkerThatHasNotTrainedCanSave) {
  elasticdl::test::TempDir dir;
  v1::JobSpec job = MakeJob(/*async=*/true);
  job.set_checkpoint_dir(dir.path());
  Make(job);
  v1::MasterMessage save;
  save.mutable_save_now()->set_step(0);
  worker_->Tell(save);
  Run();
  EXPECT_EQ(worker_->Count(Said::kCheckpointBegin), 1);
}

TEST_F(PsTrainerTest, TheEndOfTrainingIsReported) {
  Make(MakeJob(/*async=*/true));
  v1::MasterMessage end;
  end.mutable_task()->set_task_id(9);
  end.mutable_task()->set_type(v1::TRAIN_END_CALLBACK);
  worker_->Tell(end);
  Run();
  EXPECT_EQ(worker_->Last(Said::kTaskDone).task_done().task_id(), 9);
}

// ---- synchronous ----

class PsTrainerSyncTest : public PsTrainerTest {
 protected:
  void SetUp() override { Make(MakeJob(/*async=*/false)); }
  // Another worker's gradient becomes the next version.
  void CommitOther(int64_t version, float amount) {
    other().Version();
    other().Add(amount, /*id=*/-1, /*stage=*/true);
    servers_.Commit(version, "other", others_, others_ + 1);
    ++others_;
  }
  void CommitMine(int64_t version, int64_t begin) {
    servers_.Commit(version, CountedData::ShardName(0), begin, begin + 4);
    worker_->Answer(begin, version);
  }

  int64_t others_ = 0;
};

TEST_F(PsTrainerSyncTest, StagesAGradientAndWaitsForItsVersion) {
  worker_->Give(0, 8);
  Run();
  EXPECT_FALSE(worker_->trainer->HasWork());
  EXPECT_EQ(worker_->Count(Said::kStaged), 1);
  EXPECT_EQ(worker_->staged().range().begin(), 0);
  EXPECT_EQ(worker_->staged().range().end(), 4);
  EXPECT_EQ(worker_->staged().base_version(), 0);
  EXPECT_EQ(worker_->staged().map_version(), 1);
  EXPECT_EQ(other().Version(), 0);

  CommitMine(1, 0);
  Run();
  EXPECT_EQ(worker_->staged().range().begin(), 4);
  EXPECT_EQ(worker_->staged().base_version(), 1);
  CommitMine(2, 4);
  Run();
  EXPECT_THAT(model_.seen, ElementsAre(0, 1));
  EXPECT_EQ(other().Weight(), 2);
  EXPECT_THAT(other().Row(5), Each(0.25));
  // Servers know which records are in the model; the master asks nobody.
  EXPECT_EQ(worker_->Count(Said::kProgress), 0);
}

TEST_F(PsTrainerSyncTest, AGradientThatIsTooOldIsComputedAgain) {
  worker_->Give(0, 4);
  Run();
  CommitOther(1, 10);
  worker_->Answer(0, /*version=*/0);
  Run();
  EXPECT_THAT(model_.seen, ElementsAre(0, 10));
  EXPECT_EQ(worker_->Count(Said::kStaged), 2);
  EXPECT_EQ(worker_->staged().range().begin(), 0);
  EXPECT_EQ(worker_->staged().base_version(), 1);
  CommitMine(2, 0);
  Run();
  EXPECT_EQ(other().Weight(), 11);
  EXPECT_THAT(other().Row(0), Each(0.25));
  EXPECT_EQ(worker_->Count(Said::kStaged), 2);
}

// Gradients that were staged for an old map are gone.
TEST_F(PsTrainerSyncTest, AfterAMoveTheGradientIsStagedForTheNewMap) {
  worker_->Give(0, 4);
  Run();
  servers_.RenewMap();
  worker_->Answer(0, /*version=*/0);
  Run();
  EXPECT_EQ(worker_->staged().map_version(), 2);
  CommitMine(1, 0);
  Run();
  EXPECT_EQ(other().Weight(), 1);
}

TEST_F(PsTrainerSyncTest, AMoveBetweenPullAndPush) {
  model_.before_forward = [this] { servers_.RenewMap(); };
  worker_->Give(0, 4);
  Run();
  EXPECT_EQ(worker_->staged().map_version(), 2);
  CommitMine(1, 0);
  EXPECT_EQ(other().Weight(), 1);
}

TEST_F(PsTrainerSyncTest, AnswersForOtherRecordsAreIgnored) {
  worker_->Give(0, 8);
  Run();
  worker_->Answer(4, 1);
  v1::MasterMessage earlier;
  v1::PushResult& result = *earlier.mutable_push_result();
  result.mutable_range()->set_shard(CountedData::ShardName(0));
  result.mutable_range()->set_epoch(1);
  result.set_version(1);
  worker_->Tell(earlier);
  Run();
  EXPECT_FALSE(worker_->trainer->HasWork());
  EXPECT_EQ(worker_->Count(Said::kStaged), 1);
}

TEST_F(PsTrainerSyncTest, ANewMasterHearsWhatIsStaged) {
  worker_->Give(0, 4);
  Run();
  worker_->Happen(Event::Kind::kMasterBack);
  Run();
  EXPECT_EQ(worker_->Count(Said::kStaged), 2);
  EXPECT_EQ(worker_->staged().range().begin(), 0);
  EXPECT_THAT(model_.seen, ElementsAre(0));
}

TEST_F(PsTrainerSyncTest, WhenTrainingIsDoneWhatIsStagedIsGivenUp) {
  worker_->Give(0, 8);
  Run();
  v1::MasterMessage done;
  done.mutable_training_done();
  worker_->Tell(done);
  worker_->Answer(0, 0);
  Run();
  EXPECT_EQ(worker_->Count(Said::kIdle), 1);
  EXPECT_EQ(worker_->Count(Said::kStaged), 1);
  EXPECT_FALSE(worker_->trainer->HasWork());
}

}  // namespace
}  // namespace elasticdl::worker::test
