// Copies of the model on their way to the disk.
#include "checkpoint_coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kept_saver.h"
#include "members.h"

namespace elasticdl::worker::test {
namespace {

class CheckpointCoordinatorTest : public testing::Test {
 protected:
  void Make(int64_t interval, bool live = false) {
    checkpoints_ = std::make_unique<CheckpointCoordinator>(
        CheckpointCoordinator::Deps{interval, *a_.replica, *a_.session, events_,
                                    [this](v1::WorkerMessage message) {
                                      a_.sent.push_back(std::move(message));
                                    },
                                    a_.environment.time},
        std::make_unique<KeptSaver>(saves_, live));
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
    if (done[0]->stepped) {
      EXPECT_TRUE(checkpoints_->OnStep().ok());
    }
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
  std::vector<KeptSaver::Save> saves_;
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
  Make(2);
  EnterWorld(1, {&a_, &b_});
  // The first step of a world may settle at once.
  Step({&a_, &b_});
  Step({&a_, &b_});
  EXPECT_EQ(Asked(), -1);
  EXPECT_FALSE(checkpoints_->idle());
  WorkTogether({&a_, &b_});
  checkpoints_->OnRound();
  EXPECT_EQ(Asked(), 2);
}

TEST_F(CheckpointCoordinatorTest, ACopyWhoseWorldEndsIsDroppedAndMadeAgain) {
  Make(2);
  EnterWorld(1, {&a_, &b_});
  Step({&a_, &b_});
  Step({&a_, &b_});
  EnterWorld(2, {&a_});
  EXPECT_TRUE(checkpoints_->idle());
  // It is due still, though no step was due in between.
  ASSERT_TRUE(checkpoints_->SaveThis().ok());
  EXPECT_EQ(Asked(), 2);
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

// ---- models that are not copied ----

class LiveSaveTest : public CheckpointCoordinatorTest {
 protected:
  void SetUp() override { Make(1, /*live=*/true); }
  // What the saver reads of the first tensor.
  absl::StatusOr<std::vector<float>> ReadWeights(size_t save) {
    const checkpoint::Snapshot& snapshot = saves_.at(save).snapshot.snapshot;
    const absl::Span<const char> bytes = snapshot.variables.at(0).bytes;
    std::vector<float> values(bytes.size() / sizeof(float));
    const absl::Status status = snapshot.live->Read(
        bytes.data(), bytes.size(), reinterpret_cast<char*>(values.data()));
    if (!status.ok()) return status;
    return values;
  }
  // Ends the first save.
  void EndSave(const absl::StatusOr<std::string>& path) {
    KeptSaver::Save save = std::move(saves_.at(0));
    saves_.erase(saves_.begin());
    save.snapshot = checkpoint::OwnedSnapshot();
    save.done(path);
    checkpoints_->OnSaveDone();
  }
  bool HasLedger() {
    const auto answer = saves_.at(0).snapshot.snapshot.late->Poll();
    return answer.has_value() && answer->ok();
  }
  bool HasNoLedger() {
    const auto answer = saves_.at(0).snapshot.snapshot.late->Poll();
    return answer.has_value() && !answer->ok();
  }
};

TEST_F(LiveSaveTest, TheSaveBeginsAtOnceAndReadsTheStepThatItIsOf) {
  EnterWorld(1, {&a_, &b_});
  Step({&a_, &b_});
  const std::vector<float> then = ValuesOf(*a_.replica);
  ASSERT_EQ(saves_.size(), 1u) << "before the step is settled";
  EXPECT_FALSE(saves_[0].snapshot.snapshot.late->Poll().has_value());
  Step({&a_, &b_});
  EXPECT_NE(ValuesOf(*a_.replica), then);
  const auto read = ReadWeights(0);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, then);
  EXPECT_EQ(Asked(), 1);
  EXPECT_TRUE(Answer(1));
  EXPECT_TRUE(HasLedger());
  EXPECT_EQ(saves_.size(), 1u) << "the next one waits until it is done";
  EndSave(std::string("dir/version-1"));
  Step({&a_, &b_});
  ASSERT_EQ(saves_.size(), 1u);
  EXPECT_EQ(saves_[0].snapshot.snapshot.version, 3);
}

// On a device the saver reads the copy on the host, which is made anew for
// others.
TEST_F(LiveSaveTest, TheStateMayBeFetchedMeanwhile) {
  EnterWorld(1, {&a_, &b_});
  Step({&a_, &b_});
  const std::vector<float> then = ValuesOf(*a_.replica);
  Step({&a_, &b_});
  const auto first = a_.replica->StateDigest();
  ASSERT_TRUE(first.ok()) << first.status();
  Step({&a_, &b_});
  const auto second = a_.replica->StateDigest();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(*first, *second);
  const auto read = ReadWeights(0);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, then);
}

TEST_F(LiveSaveTest, WithoutALedgerItIsDropped) {
  // The first step of a world may settle at once.
  Make(2, /*live=*/true);
  EnterWorld(1, {&a_, &b_});
  Step({&a_, &b_});
  Step({&a_, &b_});
  EnterWorld(2, {&a_});
  EXPECT_TRUE(HasNoLedger());
  EndSave(absl::CancelledError("no ledger"));
  EXPECT_EQ(a_.Take(v1::WorkerMessage::kCheckpointDone), nullptr);
  EXPECT_TRUE(checkpoints_->SaveThis().ok());
  EXPECT_EQ(Asked(), 2);
  EXPECT_TRUE(Answer(2, /*granted=*/false));
  EXPECT_TRUE(HasNoLedger());
}

TEST_F(LiveSaveTest, ANewMasterIsAskedAnew) {
  EnterWorld(1, {&a_});
  Step({&a_});
  checkpoints_->OnMasterBack();
  EXPECT_TRUE(HasNoLedger());
}

TEST_F(LiveSaveTest, AStateThatIsReplacedIsGivenUpAndIsDueAgain) {
  EnterWorld(1, {&a_});
  Step({&a_});
  EXPECT_TRUE(Answer(Asked()));
  ASSERT_TRUE(a_.replica->StartAnew().ok());
  EXPECT_TRUE(absl::IsCancelled(ReadWeights(0).status()));
  EndSave(absl::CancelledError("given up"));
  Step({&a_});
  EXPECT_EQ(saves_.size(), 1u);
}

TEST_F(LiveSaveTest, AtTheEndNobodyWaitsForALedger) {
  EnterWorld(1, {&a_, &b_});
  Step({&a_, &b_});
  checkpoints_->Flush();
  EXPECT_TRUE(HasNoLedger());
}

}  // namespace
}  // namespace elasticdl::worker::test
