// Rounds and changes of worlds of members of one process.
#include "training_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "elasticdl/common/failpoint.h"
#include "members.h"

namespace elasticdl::worker::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class TrainingSessionTest : public testing::Test {
 protected:
  CountedData data_;
  std::mt19937 random_{1};
  SimNetwork network_{random_};
  Member a_{1, network_, data_};
  Member b_{2, network_, data_};
};

WorldOptions Cold() {
  WorldOptions options;
  options.cold = true;
  return options;
}

TEST_F(TrainingSessionTest, AColdWorldStartsFromFreshWeights) {
  EXPECT_FALSE(a_.session->HasWork());
  Enter(5, {&a_, &b_}, Cold());
  EXPECT_TRUE(a_.session->has_state());
  EXPECT_EQ(b_.session->lineage(), 5);
  const auto level = a_.Take(v1::WorkerMessage::kLevel);
  ASSERT_NE(level, nullptr);
  EXPECT_EQ(level->level().lineage(), 5);
  EXPECT_EQ(b_.Take(v1::WorkerMessage::kLevel), nullptr) << "only rank 0 tells";
}

TEST_F(TrainingSessionTest, ARoundTrainsTheRecordsOfAllMembers) {
  Enter(1, {&a_, &b_}, Cold());
  a_.Give(0, 4);
  b_.Give(4, 8);
  for (const auto& done : WorkTogether({&a_, &b_})) {
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_TRUE(done->stepped);
    EXPECT_EQ(done->records, 4);
  }
  EXPECT_THAT(a_.Trained(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(*a_.replica->StateDigest(), *b_.replica->StateDigest());
  EXPECT_EQ(a_.released, 1);
}

// So that whoever waits for the end of an interruption waits for one step, not
// for two.
TEST_F(TrainingSessionTest, TheFirstStepOfAWorldIsSettledAtOnce) {
  Enter(1, {&a_, &b_}, Cold());
  a_.Give(0, 8);
  b_.Give(8, 16);
  WorkTogether({&a_, &b_});
  if (!a_.replica->on_cpu()) {
    // The step may still be under way there: it is settled by the next round.
    EXPECT_EQ(a_.session->settled_step(), 0);
    WorkTogether({&a_, &b_});
    EXPECT_EQ(a_.session->settled_step(), 1);
    return;
  }
  EXPECT_EQ(a_.session->settled_step(), 1);
  EXPECT_EQ(b_.session->settled_step(), 1);
  const auto progress = a_.Take(v1::WorkerMessage::kProgress);
  ASSERT_NE(progress, nullptr);
  EXPECT_EQ(progress->progress().step(), 1);
  EXPECT_EQ(progress->progress().totals(1).records(), 4);
  // With others, other steps are settled by the round after them.
  WorkTogether({&a_, &b_});
  EXPECT_EQ(a_.replica->step(), 2);
  EXPECT_EQ(a_.session->settled_step(), 1);
}

// Who has done the step knows it, but not whether the others have.
TEST_F(TrainingSessionTest, AFirstStepThatIsNotConfirmedIsNotSettled) {
  if (!a_.replica->on_cpu()) {
    GTEST_SKIP() << "on a device no first step is confirmed";
  }
  Enter(1, {&a_, &b_}, Cold());
  a_.Give(0, 4);
  b_.Give(4, 8);
  ASSERT_TRUE(InitFailpoints("sim.barrier=error").ok());
  const auto done = WorkTogether({&a_, &b_});
  ASSERT_TRUE(InitFailpoints("").ok());
  // The world broke at one of them, perhaps before the other had the sum.
  ASSERT_TRUE(done[0].ok() && done[1].ok());
  EXPECT_TRUE(done[0]->stepped || done[1]->stepped);
  EXPECT_EQ(a_.session->settled_step(), 0);
  EXPECT_EQ(b_.session->settled_step(), 0);
  EXPECT_NE(a_.Take(v1::WorkerMessage::kWorldFailed), nullptr);
  EXPECT_EQ(a_.Take(v1::WorkerMessage::kProgress), nullptr);
  Enter(2, {&a_, &b_});
  EXPECT_EQ(a_.replica->step(), 1);
  const auto level = a_.Take(v1::WorkerMessage::kLevel);
  ASSERT_NE(level, nullptr);
  EXPECT_EQ(level->level().totals(0).records(), 4);
}

TEST_F(TrainingSessionTest, SurvivorsGoOnWithoutOffers) {
  network_.shrinks_per_mille = 1000;
  Member c(3, network_, data_);
  Enter(1, {&a_, &b_, &c}, Cold());
  auto level = a_.Take(v1::WorkerMessage::kLevel);
  ASSERT_NE(level, nullptr);
  EXPECT_TRUE(level->level().can_shrink());
  for (Member* member : {&a_, &b_, &c}) member->sent.clear();
  a_.Give(0, 4);
  b_.Give(4, 8);
  WorldOptions options;
  options.shrinks = 1;
  options.unsettled = {a_.id};
  const v1::MasterMessage prepare = MakePrepare(2, {&b_, &c}, options);
  // One of them is in a round when it hears it.
  const auto done = WorkTogether({&b_}, [&] {
    network_.Lost(a_.id);
    b_.session->Hear(prepare);
  });
  ASSERT_TRUE(done[0].ok()) << done[0].status();
  EXPECT_FALSE(done[0]->stepped);
  EXPECT_THAT(b_.sent, IsEmpty()) << "the master knows";
  b_.session->OnMessage(prepare);
  c.Tell(prepare);
  for (const auto& entered : WorkTogether({&b_, &c})) {
    ASSERT_TRUE(entered.ok()) << entered.status();
    EXPECT_TRUE(entered->entered);
  }
  EXPECT_EQ(b_.Take(v1::WorkerMessage::kOffer), nullptr);
  EXPECT_NE(b_.Take(v1::WorkerMessage::kLevel), nullptr);
  EXPECT_EQ(network_.num_shrunk, 1);
  WorkTogether({&b_, &c});
  EXPECT_THAT(c.Trained(), ElementsAre(4, 5, 6, 7));
}

TEST_F(TrainingSessionTest, RankZeroSendsHistogramsEverySoManySteps) {
  TrainingSession::Options options;
  options.histogram_steps = 2;
  Member c(3, network_, data_, options);
  Member d(4, network_, data_, options);
  Enter(1, {&c, &d}, Cold());
  c.Give(0, 16);
  d.Give(16, 32);
  for (int64_t step = 1; step <= 4; ++step) {
    for (const auto& done : WorkTogether({&c, &d})) {
      ASSERT_TRUE(done.ok()) << done.status();
      EXPECT_TRUE(done->stepped);
    }
    EXPECT_EQ(d.Take(v1::WorkerMessage::kHistograms), nullptr);
    const auto sent = c.Take(v1::WorkerMessage::kHistograms);
    ASSERT_EQ(sent != nullptr, step % 2 == 0) << step;
    if (sent == nullptr) continue;
    EXPECT_EQ(sent->histograms().step(), step);
    ASSERT_GT(sent->histograms().weights_size(), 0);
    ASSERT_EQ(sent->histograms().weights_size(),
              sent->histograms().gradients_size());
    // They are those of the model after this step.
    const v1::Histogram& weights = sent->histograms().weights(0);
    const auto& slice = c.replica->parameters().slices()[0];
    EXPECT_EQ(weights.name(), slice.name);
    EXPECT_EQ(weights.num(), static_cast<int64_t>(slice.size));
    EXPECT_EQ(weights.sum(), c.replica->parameters()
                                 .tensors()[0]
                                 .detach()
                                 .to(torch::kCPU)
                                 .to(torch::kFloat64)
                                 .sum()
                                 .item<double>());
    EXPECT_GT(sent->histograms().gradients(0).sum_squares(), 0);
  }
}

TEST_F(TrainingSessionTest, AMemberWithoutDataTakesPart) {
  Enter(1, {&a_, &b_}, Cold());
  a_.Give(0, 4);
  for (const auto& done : WorkTogether({&a_, &b_})) {
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_TRUE(done->stepped);
  }
  EXPECT_THAT(b_.Trained(), ElementsAre(0, 1, 2, 3));
  // Nobody has data: all are at rest, and rank 0 says so.
  WorkTogether({&a_, &b_});
  EXPECT_FALSE(a_.session->HasWork());
  EXPECT_FALSE(b_.session->HasWork());
  EXPECT_NE(a_.Take(v1::WorkerMessage::kIdle), nullptr);
  EXPECT_EQ(b_.Take(v1::WorkerMessage::kIdle), nullptr);
  const auto progress = a_.Take(v1::WorkerMessage::kProgress);
  ASSERT_NE(progress, nullptr);
  EXPECT_EQ(progress->progress().step(), 1);
  EXPECT_EQ(progress->progress().totals(0).records(), 4);
  EXPECT_EQ(progress->progress().totals(1).records(), 0);
  v1::MasterMessage wake;
  wake.mutable_wake()->set_generation(7);
  a_.Tell(wake);
  EXPECT_FALSE(a_.session->HasWork()) << "that was another world's";
  wake.mutable_wake()->set_generation(1);
  a_.Tell(wake);
  EXPECT_TRUE(a_.session->HasWork());
}

TEST_F(TrainingSessionTest, AFailureInAReduceLeavesModelAndDataAsTheyWere) {
  Enter(1, {&a_, &b_}, Cold());
  a_.Give(0, 4);
  const uint32_t before = *a_.replica->StateDigest();
  const auto done = WorkTogether({&a_}, [this] { network_.Lost(b_.id); });
  ASSERT_TRUE(done[0].ok()) << done[0].status();
  EXPECT_FALSE(done[0]->stepped);
  EXPECT_EQ(*a_.replica->StateDigest(), before);
  EXPECT_EQ(a_.released, 0);
  const auto failed = a_.Take(v1::WorkerMessage::kWorldFailed);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->world_failed().generation(), 1);
  EXPECT_FALSE(a_.session->HasWork());
  // The same minibatch goes into the next world, once.
  Enter(2, {&a_});
  ASSERT_TRUE(a_.session->Work(1.0).ok());
  EXPECT_THAT(a_.Trained(), ElementsAre(0, 1, 2, 3));
}

TEST_F(TrainingSessionTest, DissolvingBreaksAReduceOff) {
  Enter(1, {&a_, &b_}, Cold());
  a_.Give(0, 4);
  v1::MasterMessage dissolve;
  dissolve.mutable_dissolve()->set_generation(1);
  const auto done = WorkTogether({&a_}, [&] { a_.session->Hear(dissolve); });
  ASSERT_TRUE(done[0].ok()) << done[0].status();
  EXPECT_FALSE(done[0]->stepped);
  a_.session->OnMessage(dissolve);
  EXPECT_EQ(a_.session->world(), nullptr);
}

// The step was complete at one member and broken off at the other: who is
// behind takes the model over and does not train its part again.
TEST_F(TrainingSessionTest, WhatADonorHasTrainedIsDropped) {
  Enter(1, {&a_, &b_}, Cold());
  a_.Give(0, 4);
  b_.Give(12, 16);
  // The first step of a world is one that all have done.
  WorkTogether({&a_, &b_});
  a_.Give(16, 20);
  b_.Give(4, 8);
  Together({[this] {
              EXPECT_TRUE(a_.session->Work(1.0)->stepped);
              b_.link->Break("too late for b");
            },
            [this] { EXPECT_FALSE(b_.session->Work(1.0)->stepped); }});
  EXPECT_EQ(b_.released, 1);
  Member c(3, network_, data_);
  Enter(2, {&a_, &b_, &c});
  EXPECT_EQ(b_.released, 2);
  EXPECT_EQ(c.replica->step(), 2);
  const auto level = a_.Take(v1::WorkerMessage::kLevel);
  ASSERT_NE(level, nullptr);
  EXPECT_EQ(level->level().totals_size(), 2);
  b_.Give(8, 12);
  WorkTogether({&a_, &b_, &c});
  EXPECT_EQ(c.Trained().size(), 20u);
  EXPECT_EQ(*c.replica->StateDigest(), *b_.replica->StateDigest());
}

TEST_F(TrainingSessionTest, TheModelsErrorNamesItsRecords) {
  Enter(1, {&a_}, Cold());
  a_.Give(4, 8);
  a_.model.loss_status = absl::InternalError("loss: boom");
  const auto done = a_.session->Work(1.0);
  EXPECT_EQ(done.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(done.status().message()),
              testing::AllOf(HasSubstr("boom"), HasSubstr("4 to 8"),
                             HasSubstr("shard-0")));
  EXPECT_THAT(a_.Trained(), IsEmpty());
}

TEST_F(TrainingSessionTest, ALossThatIsNotFiniteIsAnError) {
  Enter(1, {&a_}, Cold());
  a_.Give(0, 4);
  a_.model.loss_offset = std::numeric_limits<double>::infinity();
  EXPECT_THAT(std::string(a_.session->Work(1.0).status().message()),
              HasSubstr("learning rate"));
  EXPECT_THAT(a_.Trained(), IsEmpty());
}

TEST_F(TrainingSessionTest, AnErrorOfTheDataIsAnError) {
  Enter(1, {&a_}, Cold());
  v1::Task task;
  task.mutable_range()->set_end(1);
  auto minibatch = std::make_shared<Minibatch>(
      std::make_shared<const v1::Task>(task), 0, 1, std::vector<int64_t>{0});
  minibatch->Set(absl::DataLossError("record 0 of x: broken"));
  a_.session->AnnounceTask();
  EXPECT_TRUE(a_.session->WaitsForData());
  a_.session->AddMinibatch(minibatch);
  EXPECT_EQ(a_.session->Work(1.0).status(),
            absl::DataLossError("record 0 of x: broken"));
}

TEST_F(TrainingSessionTest, ACutBackDropsWhatWasRead) {
  Enter(1, {&a_}, Cold());
  a_.Give(0, 4);
  ASSERT_TRUE(a_.session->Work(1.0).ok());
  a_.environment.checkpoints["v1"] =
      checkpoint::OwnedSnapshot::Copy(*a_.replica->View());
  a_.Give(4, 12);
  ASSERT_TRUE(a_.session->Work(1.0).ok());
  EXPECT_EQ(a_.Trained().size(), 8u);
  WorldOptions options = Cold();
  options.restore_from = "v1";
  options.cold_step = 1;
  Enter(2, {&a_}, options);
  EXPECT_THAT(a_.Trained(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(a_.session->lineage(), 2);
  EXPECT_EQ(a_.released, 3) << "the third minibatch is not needed any more";
}

TEST_F(TrainingSessionTest, ACutBackToTheBeginningStartsAnew) {
  Enter(1, {&a_}, Cold());
  a_.Give(0, 4);
  ASSERT_TRUE(a_.session->Work(1.0).ok());
  Enter(2, {&a_}, Cold());
  EXPECT_THAT(a_.Trained(), IsEmpty());
  EXPECT_EQ(a_.replica->step(), 0);
}

TEST_F(TrainingSessionTest, ACheckpointOfAnotherStepIsAnError) {
  WorldOptions options = Cold();
  options.cold_step = 3;
  Connect(1, {&a_}, options);
  const auto done = WorkTogether({&a_});
  EXPECT_TRUE(absl::IsFailedPrecondition(done[0].status()));
  EXPECT_THAT(std::string(done[0].status().message()), HasSubstr("step 3"));
}

// The master looks for an older one.
TEST_F(TrainingSessionTest, ACheckpointThatCannotBeUsedBreaksTheWorld) {
  Enter(1, {&a_}, Cold());
  a_.Give(0, 4);
  ASSERT_TRUE(a_.session->Work(1.0).ok());
  a_.environment.checkpoints["v1"] =
      checkpoint::OwnedSnapshot::Copy(*a_.replica->View());
  const uint32_t digest = *a_.replica->StateDigest();
  WorldOptions options = Cold();
  options.cold_step = 1;
  int64_t generation = 2;
  for (const std::string path : {"gone", "stale", "damaged"}) {
    SCOPED_TRACE(path);
    options.restore_from = path;
    Connect(generation++, {&a_}, options);
    const auto done = WorkTogether({&a_});
    ASSERT_TRUE(done[0].ok()) << done[0].status();
    EXPECT_FALSE(done[0]->entered);
    EXPECT_FALSE(a_.session->has_state());
    const auto failed = a_.Take(v1::WorkerMessage::kWorldFailed);
    ASSERT_NE(failed, nullptr);
    EXPECT_TRUE(failed->world_failed().checkpoint_unusable());
    EXPECT_FALSE(failed->world_failed().kept_unusable());
    EXPECT_THAT(failed->world_failed().reason(), HasSubstr(path));
  }
  // Half of the damaged one was written over the model, or over its copy on the
  // host.
  if (a_.replica->on_cpu()) {
    EXPECT_NE(*a_.replica->StateDigest(), digest);
  }
  options.restore_from = "v1";
  Enter(generation++, {&a_}, options);
  EXPECT_EQ(*a_.replica->StateDigest(), digest);
  options.restore_from = "damaged";
  Connect(generation++, {&a_}, options);
  ASSERT_TRUE(WorkTogether({&a_})[0].ok());
  // Without any checkpoint it begins anew, with weights of its own.
  Enter(generation++, {&a_}, Cold());
  EXPECT_THAT(a_.Trained(), IsEmpty());
}

TEST_F(TrainingSessionTest, ALoadThatIsOvertakenIsGivenUp) {
  WorldOptions options = Cold();
  options.restore_from = "v1";
  Connect(1, {&a_}, options);
  a_.environment.while_loading = [this] {
    a_.session->Hear(MakePrepare(2, {&a_}, Cold()));
  };
  const auto done = WorkTogether({&a_});
  ASSERT_TRUE(done[0].ok()) << done[0].status();
  EXPECT_FALSE(done[0]->entered);
  EXPECT_FALSE(a_.session->has_state());
}

TEST_F(TrainingSessionTest, AWorldThatWasOvertakenIsNotEntered) {
  Connect(1, {&a_}, Cold());
  a_.session->Hear(MakePrepare(2, {&a_}, Cold()));
  const auto done = a_.session->Work(1.0);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_FALSE(done->entered);
  EXPECT_FALSE(a_.session->HasWork());
}

TEST_F(TrainingSessionTest, AMemberThatIsLostWhileTheyComeLevelBreaksTheWorld) {
  Connect(1, {&a_, &b_}, Cold());
  const auto done = WorkTogether({&a_}, [this] { network_.Lost(b_.id); });
  ASSERT_TRUE(done[0].ok()) << done[0].status();
  EXPECT_FALSE(done[0]->entered);
  EXPECT_NE(a_.Take(v1::WorkerMessage::kWorldFailed), nullptr);
}

TEST_F(TrainingSessionTest, NobodyHasAModelInAWarmWorld) {
  Connect(1, {&a_});
  EXPECT_TRUE(absl::IsFailedPrecondition(WorkTogether({&a_})[0].status()));
}

TEST_F(TrainingSessionTest, AHaltForAnEvaluationEndsWithResume) {
  Enter(1, {&a_}, Cold());
  a_.Give(0, 8);
  a_.session->AskEvaluation();
  auto done = a_.session->Work(1.0);
  ASSERT_TRUE(done.ok());
  EXPECT_TRUE(done->halted);
  EXPECT_FALSE(a_.session->HasWork());
  a_.session->Resume();
  EXPECT_TRUE(a_.session->HasWork());
}

TEST_F(TrainingSessionTest, AWorldThatIsBeingEvaluatedDoesNotTrain) {
  WorldOptions options = Cold();
  options.evaluating = true;
  Enter(1, {&a_}, options);
  a_.Give(0, 4);
  EXPECT_TRUE(a_.session->halted());
  EXPECT_FALSE(a_.session->HasWork());
}

TEST_F(TrainingSessionTest, TheStopOfOneMemberStopsAll) {
  Enter(1, {&a_, &b_}, Cold());
  a_.Give(0, 4);
  b_.Give(4, 8);
  b_.session->AskStop("good enough");
  WorkTogether({&a_, &b_});
  for (const auto& done : WorkTogether({&a_, &b_})) {
    ASSERT_TRUE(done.ok());
    EXPECT_TRUE(done->halted);
  }
  EXPECT_TRUE(a_.session->over());
  EXPECT_EQ(a_.session->stop_reason(), "the callback of another worker");
  EXPECT_EQ(b_.session->stop_reason(), "good enough");
  a_.session->Resume();
  EXPECT_TRUE(a_.session->halted()) << "the end is the end";
}

TEST_F(TrainingSessionTest, TheEndIsHeardOnceAndOnlyInItsWorld) {
  Enter(3, {&a_}, Cold());
  EXPECT_FALSE(a_.session->End(2));
  EXPECT_TRUE(a_.session->End(3));
  EXPECT_FALSE(a_.session->End(3));
}

TEST_F(TrainingSessionTest, WhoLeavesPutsNothingIntoTheModel) {
  Enter(1, {&a_, &b_}, Cold());
  a_.Give(0, 4);
  b_.Give(4, 8);
  b_.session->StopTakingData();
  WorkTogether({&a_, &b_});
  EXPECT_THAT(b_.Trained(), ElementsAre(0, 1, 2, 3));
}

class GlobalBatchTest : public TrainingSessionTest {
 protected:
  static TrainingSession::Options Options() {
    TrainingSession::Options options;
    options.minibatch_size = 4;
    options.global_batch_size = 12;
    return options;
  }
  Member c_{4, network_, data_, Options()};
  Member d_{5, network_, data_, Options()};
};

TEST_F(GlobalBatchTest, AStepWaitsForItsWholeShare) {
  Enter(1, {&c_, &d_}, Cold());
  EXPECT_TRUE(c_.session->Starves());
  // Two of three minibatches are rank 0's.
  c_.Give(0, 4);
  EXPECT_FALSE(c_.session->HasWork());
  c_.Give(4, 8);
  EXPECT_TRUE(c_.session->HasWork());
  d_.Give(8, 12);
  WorkTogether({&c_, &d_});
  EXPECT_EQ(c_.Trained().size(), 12u);
}

// One minibatch per step, three members: each has its turn, also when the
// others have no data left.
TEST_F(GlobalBatchTest, MoreMembersThanMinibatchesTakeTurns) {
  TrainingSession::Options options = Options();
  options.global_batch_size = 4;
  Member e(6, network_, data_, options);
  Member f(7, network_, data_, options);
  Member g(8, network_, data_, options);
  const std::vector<Member*> all = {&e, &f, &g};
  Enter(1, all, Cold());
  g.Give(0, 8);
  v1::MasterMessage message;
  message.mutable_no_more_tasks();
  for (Member* member : all) member->session->Hear(message);
  message.mutable_wake()->set_generation(1);
  for (int round = 0; round < 6; ++round) {
    for (const auto& done : WorkTogether(all)) {
      ASSERT_TRUE(done.ok()) << done.status();
      EXPECT_EQ(done->stepped, round % 3 == 2) << round;
    }
    for (Member* member : all) member->Tell(message);
  }
  EXPECT_EQ(e.Trained().size(), 8u);
}

TEST_F(GlobalBatchTest, TheRestOfTheDataIsTrainedWhenThereIsNoMore) {
  Enter(1, {&c_}, Cold());
  c_.Give(0, 4);
  EXPECT_FALSE(c_.session->HasWork());
  v1::MasterMessage no_more;
  no_more.mutable_no_more_tasks();
  c_.session->Hear(no_more);
  EXPECT_FALSE(c_.session->Starves());
  ASSERT_TRUE(c_.session->HasWork());
  ASSERT_TRUE(c_.session->Work(1.0).ok());
  EXPECT_EQ(c_.Trained().size(), 4u);
}

// ---- members that catch up ----

class CatchUpTest : public TrainingSessionTest {
 protected:
  void SetUp() override {
    if (!TestExecution().device.is_cpu()) {
      GTEST_SKIP() << "on a device the state is given as a whole";
    }
  }
  static TrainingSession::Options InPieces() {
    TrainingSession::Options options;
    options.background_join_bytes = 1;
    // In a test no time passes: one unit after each round.
    options.join_bandwidth = 1;
    return options;
  }
  // One round of all; `giver` has data for it.
  void Round(Member& giver, const std::vector<Member*>& members) {
    giver.Give(next_, next_ + 1);
    ++next_;
    for (const auto& done : WorkTogether(members)) {
      ASSERT_TRUE(done.ok()) << done.status();
      EXPECT_TRUE(done->stepped);
    }
  }

  Member p_{11, network_, data_, InPieces()};
  Member q_{12, network_, data_, InPieces()};
  Member r_{13, network_, data_, InPieces()};
  int64_t next_ = 0;
};

TEST_F(CatchUpTest, AJoinerGetsTheStateWhileTheOthersTrain) {
  Enter(1, {&p_}, Cold());
  Round(p_, {&p_});
  Enter(2, {&p_, &q_});
  const auto level = p_.Take(v1::WorkerMessage::kLevel);
  ASSERT_NE(level, nullptr);
  EXPECT_THAT(level->level().behind(), ElementsAre(12));
  EXPECT_FALSE(q_.session->has_state());
  for (int i = 0; i < 20; ++i) Round(p_, {&p_, &q_});
  EXPECT_EQ(q_.Take(v1::WorkerMessage::kCaughtUp), nullptr);
  EXPECT_FALSE(q_.session->has_state());
  EXPECT_TRUE(q_.session->HasWork()) << "takes part without data";
  // A round without data: the rest follows at once.
  WorkTogether({&p_, &q_});
  ASSERT_NE(q_.Take(v1::WorkerMessage::kCaughtUp), nullptr);
  EXPECT_TRUE(q_.session->has_state());
  EXPECT_EQ(*q_.replica->StateDigest(), *p_.replica->StateDigest());
}

TEST_F(CatchUpTest, WhatItHasIsTrainedAndIsLevelAfterOneTurn) {
  TrainingSession::Options options = InPieces();
  // Eight numbers and their slots after each round of a second.
  options.join_bandwidth = 64;
  Member a(1, network_, data_, options);
  Member b(2, network_, data_, options);
  Enter(1, {&a}, Cold());
  Enter(2, {&a, &b});
  int rounds = 0;
  for (; rounds < 38 && !b.session->has_state(); ++rounds) {
    a.environment.time.now += absl::Seconds(1);
    Round(a, {&a, &b});
  }
  EXPECT_GE(rounds, 16);
  ASSERT_TRUE(b.session->has_state());
  EXPECT_NE(b.Take(v1::WorkerMessage::kCaughtUp), nullptr);
  EXPECT_EQ(*b.replica->StateDigest(), *a.replica->StateDigest());
  Round(b, {&a, &b});
  EXPECT_EQ(*b.replica->StateDigest(), *a.replica->StateDigest());
}

TEST_F(CatchUpTest, APartIsKeptInTheNextWorldOfTheSameStep) {
  Enter(1, {&p_}, Cold());
  Enter(2, {&p_, &q_});
  for (int i = 0; i < 5; ++i) Round(p_, {&p_, &q_});
  EXPECT_EQ(q_.replica->part()->have, 5u);
  Enter(3, {&p_, &q_, &r_});
  EXPECT_EQ(q_.replica->part()->have, 5u);
  EXPECT_EQ(r_.replica->part()->begin, 5u);
  for (int i = 0; i < 5; ++i) Round(p_, {&p_, &q_, &r_});
  WorkTogether({&p_, &q_, &r_});
  EXPECT_EQ(*q_.replica->StateDigest(), *p_.replica->StateDigest());
  EXPECT_EQ(*r_.replica->StateDigest(), *p_.replica->StateDigest());
}

// A world that breaks before anything was given takes nothing away.
TEST_F(CatchUpTest, APartIsKeptWhenEnteringAWorldBreaksOff) {
  Enter(1, {&p_}, Cold());
  Enter(2, {&p_, &q_});
  for (int i = 0; i < 5; ++i) Round(p_, {&p_, &q_});
  Connect(3, {&p_, &q_, &r_});
  WorkTogether({&p_, &q_}, [this] { network_.Lost(13); });
  EXPECT_NE(q_.Take(v1::WorkerMessage::kWorldFailed), nullptr);
  Enter(4, {&p_, &q_});
  EXPECT_EQ(q_.replica->part()->have, 5u);
  Round(p_, {&p_, &q_});
  WorkTogether({&p_, &q_});
  EXPECT_EQ(q_.replica->StateDigest(), p_.replica->StateDigest());
}

// Its turn ends before another's, for whom the world breaks.
TEST_F(CatchUpTest, WhoHasAllOfItIsLevelThoughTheRestBreaksOff) {
  Enter(1, {&p_}, Cold());
  Enter(2, {&p_, &q_});
  for (int i = 0; i < 5; ++i) Round(p_, {&p_, &q_});
  Enter(3, {&p_, &q_, &r_});
  Round(p_, {&p_, &q_, &r_});
  Member s(14, network_, data_, InPieces());
  Enter(4, {&p_, &q_, &r_, &s});
  // Three pieces are left: q needs one, r two, s all of them.
  ASSERT_TRUE(InitFailpoints("stream.give=error@2").ok());
  WorkTogether({&p_, &q_, &r_, &s});
  ASSERT_TRUE(InitFailpoints("").ok());
  EXPECT_TRUE(q_.session->has_state());
  EXPECT_NE(q_.Take(v1::WorkerMessage::kCaughtUp), nullptr);
  EXPECT_NE(q_.Take(v1::WorkerMessage::kWorldFailed), nullptr);
  EXPECT_FALSE(s.session->has_state());
  EXPECT_EQ(s.Take(v1::WorkerMessage::kCaughtUp), nullptr);
  // The donor is gone.
  Enter(5, {&q_, &s});
  EXPECT_EQ(q_.replica->StateDigest(), p_.replica->StateDigest());
  WorkTogether({&q_, &s});
  EXPECT_EQ(s.replica->StateDigest(), p_.replica->StateDigest());
}

TEST_F(CatchUpTest, TheShareOfAStepIsThatOfTheMembersThatTrain) {
  TrainingSession::Options options = InPieces();
  options.minibatch_size = 1;
  options.global_batch_size = 2;
  Member a(1, network_, data_, options);
  Member b(2, network_, data_, options);
  Enter(1, {&a}, Cold());
  Enter(2, {&a, &b});
  a.Give(0, 2);
  for (const auto& done : WorkTogether({&a, &b})) ASSERT_TRUE(done.ok());
  EXPECT_THAT(a.Trained(), ElementsAre(0, 1));
}

TEST_F(CatchUpTest, AColdWorldForgetsAPart) {
  Enter(1, {&p_}, Cold());
  Enter(2, {&p_, &q_});
  for (int i = 0; i < 5; ++i) Round(p_, {&p_, &q_});
  Enter(3, {&q_}, Cold());
  EXPECT_TRUE(q_.session->has_state());
  EXPECT_FALSE(q_.replica->part().has_value());
  EXPECT_THAT(q_.Trained(), IsEmpty());
  Round(q_, {&q_});
  EXPECT_THAT(q_.Trained(), ElementsAre(5));
}

}  // namespace
}  // namespace elasticdl::worker::test
