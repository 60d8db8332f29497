// Copies of the model on their way to the disk.
#include "checkpoint_coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "members.h"

namespace elasticdl::worker::test {
namespace {

// Keeps what it is given; the test says how each save ends.
class TestSaver : public checkpoint::Saver {
 public:
  struct Save {
    checkpoint::OwnedSnapshot snapshot;
    Done done;
  };
  explicit TestSaver(std::vector<Save>& saves) : saves_(saves) {}
  void Submit(checkpoint::OwnedSnapshot snapshot, Done done) override {
    saves_.push_back({std::move(snapshot), std::move(done)});
  }
  absl::Status Flush(absl::Duration) override {
    return saves_.empty() ? absl::OkStatus()
                          : absl::DeadlineExceededError("slow disk");
  }

 private:
  std::vector<Save>& saves_;
};

class CheckpointCoordinatorTest : public testing::Test {
 protected:
  void Make(int64_t interval) {
    checkpoints_ = std::make_unique<CheckpointCoordinator>(
        CheckpointCoordinator::Deps{interval, *a_.replica, *a_.session, events_,
                                    [this](v1::WorkerMessage message) {
                                      a_.sent.push_back(std::move(message));
                                    },
                                    a_.environment.time},
        std::make_unique<TestSaver>(saves_));
  }
  void EnterWorld(int64_t generation, std::vector<Member*> members,
                  int64_t saved_step = -1) {
    WorldOptions options;
    options.cold = generation == 1;
    options.saved_step = saved_step;
    Enter(generation, members, options);
    checkpoints_->OnEntered(*a_.session->world());
  }
  // One step of a alone, or of both.
  void Step(const std::vector<Member*>& members) {
    a_.Give(next_, next_ + 4);
    next_ += 4;
    const auto done = WorkTogether(members);
    ASSERT_TRUE(done[0].ok()) << done[0].status();
    if (done[0]->stepped) EXPECT_TRUE(checkpoints_->OnStep().ok());
    checkpoints_->OnRound();
  }
  // The step that a ledger is asked for; -1 = none.
  int64_t Asked() {
    const auto begin = a_.Take(v1::WorkerMessage::kCheckpointBegin);
    return begin == nullptr ? -1 : begin->checkpoint_begin().step();
  }
  bool Answer(int64_t step, bool granted = true) {
    v1::LedgerReply reply;
    reply.set_step(step);
    if (granted) {
      reply.mutable_ledger()->set_step(step);
      reply.set_run("run");
    }
    return checkpoints_->OnLedger(reply);
  }

  std::mt19937 random_{1};
  SimNetwork network_{random_};
  Member a_{1, network_, CountedData()};
  Member b_{2, network_, CountedData()};
  TestQueue events_;
  std::vector<TestSaver::Save> saves_;
  std::unique_ptr<CheckpointCoordinator> checkpoints_;
  int64_t next_ = 0;
};

TEST_F(CheckpointCoordinatorTest, SavesAtTheStepsThatAreDue) {
  Make(2);
  EnterWorld(1, {&a_});
  Step({&a_});
  EXPECT_EQ(Asked(), -1);
  Step({&a_});
  EXPECT_EQ(Asked(), 2);
  EXPECT_FALSE(checkpoints_->idle());
  // The master must have heard of the step before it is asked for its ledger.
  EXPECT_EQ(a_.Take(v1::WorkerMessage::kProgress)->progress().step(), 2);
  EXPECT_TRUE(Answer(2));
  ASSERT_EQ(saves_.size(), 1u);
  EXPECT_EQ(saves_[0].snapshot.snapshot.version, 2);
  EXPECT_EQ(saves_[0].snapshot.snapshot.lineage.run, "run");
  EXPECT_EQ(saves_[0].snapshot.snapshot.lineage.generation, 1);
  saves_[0].done(std::string("dir/version-2"));
  const auto done = a_.Take(v1::WorkerMessage::kCheckpointDone);
  ASSERT_NE(done, nullptr);
  EXPECT_EQ(done->checkpoint_done().path(), "dir/version-2");
  ASSERT_EQ(events_.events.size(), 1u);
  EXPECT_EQ(events_.events[0].kind, Event::Kind::kSaveDone);
  EXPECT_FALSE(checkpoints_->idle()) << "until the event is handled";
  checkpoints_->OnSaveDone();
  EXPECT_TRUE(checkpoints_->idle());
}

TEST_F(CheckpointCoordinatorTest, AFailedSaveIsToldWithItsReason) {
  Make(1);
  EnterWorld(1, {&a_});
  Step({&a_});
  Answer(Asked());
  saves_.at(0).done(absl::ResourceExhaustedError("disk full"));
  const auto done = a_.Take(v1::WorkerMessage::kCheckpointDone);
  ASSERT_NE(done, nullptr);
  EXPECT_EQ(done->checkpoint_done().error(), "disk full");
  EXPECT_EQ(done->checkpoint_done().step(), 1);
}

TEST_F(CheckpointCoordinatorTest, ASaveThatWasOvertakenIsNotTold) {
  Make(1);
  EnterWorld(1, {&a_});
  Step({&a_});
  Answer(Asked());
  saves_.at(0).done(absl::CancelledError("overtaken"));
  EXPECT_EQ(a_.Take(v1::WorkerMessage::kCheckpointDone), nullptr);
  EXPECT_EQ(events_.events.size(), 1u);
}

TEST_F(CheckpointCoordinatorTest, WithOthersTheStepSettlesInTheNextRound) {
  Make(1);
  EnterWorld(1, {&a_, &b_});
  Step({&a_, &b_});
  EXPECT_EQ(Asked(), -1);
  EXPECT_FALSE(checkpoints_->idle());
  WorkTogether({&a_, &b_});
  checkpoints_->OnRound();
  EXPECT_EQ(Asked(), 1);
}

TEST_F(CheckpointCoordinatorTest, ACopyWhoseWorldEndsIsDroppedAndMadeAgain) {
  Make(1);
  EnterWorld(1, {&a_, &b_});
  Step({&a_, &b_});
  EnterWorld(2, {&a_});
  EXPECT_TRUE(checkpoints_->idle());
  // It is due still, though no step was due in between.
  ASSERT_TRUE(checkpoints_->SaveThis().ok());
  EXPECT_EQ(Asked(), 1);
}

TEST_F(CheckpointCoordinatorTest, OnlyRankZeroSaves) {
  Make(1);
  EnterWorld(1, {&b_, &a_});
  Step({&b_, &a_});
  EXPECT_TRUE(checkpoints_->idle());
}

TEST_F(CheckpointCoordinatorTest, AWorldTellsWhatIsSaved) {
  Make(4);
  EnterWorld(1, {&a_}, /*saved_step=*/5);
  for (int i = 0; i < 7; ++i) Step({&a_});
  EXPECT_EQ(Asked(), -1) << "5 is saved, 8 is next";
  Step({&a_});
  EXPECT_EQ(Asked(), 8);
}

TEST_F(CheckpointCoordinatorTest, ARefusedLedgerDropsTheCopy) {
  Make(1);
  EnterWorld(1, {&a_});
  Step({&a_});
  EXPECT_EQ(Asked(), 1);
  EXPECT_TRUE(Answer(1, /*granted=*/false)) << "the world is the same";
  EXPECT_TRUE(checkpoints_->idle());
  EXPECT_TRUE(saves_.empty());
  ASSERT_TRUE(checkpoints_->SaveThis().ok());
  EXPECT_EQ(Asked(), 1) << "it is to be saved again";
}

TEST_F(CheckpointCoordinatorTest, ARefusalAfterAChangeOfWorldsIsLookedAtAgain) {
  Make(1);
  EnterWorld(1, {&a_});
  Step({&a_});
  EXPECT_EQ(Asked(), 1);
  EnterWorld(2, {&a_});
  EXPECT_FALSE(Answer(1, /*granted=*/false));
}

TEST_F(CheckpointCoordinatorTest, AnAnswerThatNobodyWaitsForIsIgnored) {
  Make(1);
  EnterWorld(1, {&a_});
  EXPECT_TRUE(Answer(7));
  EXPECT_TRUE(saves_.empty());
}

TEST_F(CheckpointCoordinatorTest, ANewMasterIsAskedAnew) {
  Make(1);
  EnterWorld(1, {&a_});
  Step({&a_});
  EXPECT_EQ(Asked(), 1);
  checkpoints_->OnMasterBack();
  EXPECT_TRUE(checkpoints_->idle());
  EXPECT_TRUE(Answer(1));
  EXPECT_TRUE(saves_.empty());
  ASSERT_TRUE(checkpoints_->SaveThis().ok());
  EXPECT_EQ(Asked(), 1);
}

TEST_F(CheckpointCoordinatorTest, TheSameStepIsSavedOnce) {
  Make(1);
  EnterWorld(1, {&a_});
  Step({&a_});
  EXPECT_EQ(Asked(), 1);
  ASSERT_TRUE(checkpoints_->SaveThis().ok());
  EXPECT_EQ(Asked(), -1);
}

TEST_F(CheckpointCoordinatorTest, WithoutAFolderNothingIsSaved) {
  checkpoints_ = std::make_unique<CheckpointCoordinator>(
      CheckpointCoordinator::Deps{1, *a_.replica, *a_.session, events_,
                                  [](const v1::WorkerMessage&) {},
                                  a_.environment.time},
      nullptr);
  EnterWorld(1, {&a_});
  Step({&a_});
  ASSERT_TRUE(checkpoints_->SaveThis().ok());
  checkpoints_->Flush();
  EXPECT_TRUE(checkpoints_->idle());
}

TEST_F(CheckpointCoordinatorTest, FlushGivesUpOnASlowDisk) {
  Make(1);
  EnterWorld(1, {&a_});
  Step({&a_});
  Answer(Asked());
  checkpoints_->Flush();
  EXPECT_FALSE(checkpoints_->idle());
}

}  // namespace
}  // namespace elasticdl::worker::test
