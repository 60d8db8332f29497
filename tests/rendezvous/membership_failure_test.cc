// Membership when workers die, break or are late: one case per rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/membership_fixture.h"

namespace elasticdl::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class MembershipFailureTest : public MembershipTest {};

// ---- loss ----

TEST_F(MembershipFailureTest, ALossMakesAnUrgentWorldAtOnce) {
  StartWorld(3);
  Lost(2);
  ExpectPrepare(2, true, false, {1, 3});
  EXPECT_EQ(m_->active_generation(), 0);
  now_ += absl::Milliseconds(80);
  Offer({1, 3}, 2);
  Connect({1, 3}, 2);
  EXPECT_THAT(last_, IsEmpty());  // no switch
  Level(3, 2);
  EXPECT_EQ(The(Kind::kActive).pause, absl::Milliseconds(80));
  EXPECT_EQ(The(Kind::kActive).reason, "worker 2 lost: stream closed");
}

TEST_F(MembershipFailureTest, ALossInEachPhaseOfAnUrgentWorldFormsTheNext) {
  StartWorld(5);
  Lost(1);
  ExpectPrepare(2, true, false, {2, 3, 4, 5});
  Lost(2);
  ExpectPrepare(3, true, false, {3, 4, 5});
  Offer({3, 4, 5}, 3);
  Connect(4, 3);
  Lost(3);
  ExpectPrepare(4, true, false, {4, 5});
  Answer(4, {4, 5});
  Lost(4);
  ExpectPrepare(5, true, false, {5});
  Answer(5, {5});
  Level(5, 5);
  EXPECT_THAT(The(Kind::kActive).reason, HasSubstr("worker 1 lost"));
  EXPECT_THAT(The(Kind::kActive).reason, HasSubstr("3 more"));
}

TEST_F(MembershipFailureTest, SurvivorsGoOnWithoutOffers) {
  can_shrink_ = true;
  StartWorld(4);
  Lost(2);
  ExpectPrepare(2, true, false, {1, 3, 4});
  EXPECT_EQ(The(Kind::kPrepare).shrinks, 1);
  // They are not late with what nobody asks them for.
  now_ += absl::Minutes(1);
  EXPECT_GT(m_->NextTimer(), now_);
  Loaded({1, 3, 4}, 2);
  Level(1, 2);
  EXPECT_EQ(The(Kind::kActive).reason, "worker 2 lost: stream closed");
  // And again.
  Lost(1);
  ExpectPrepare(3, true, false, {3, 4});
  EXPECT_EQ(The(Kind::kPrepare).shrinks, 2);
  // Until a world cannot, or was not level yet.
  Lost(3);
  ExpectPrepare(4, true, false, {4});
  EXPECT_EQ(The(Kind::kPrepare).shrinks, 0);
}

TEST_F(MembershipFailureTest, AShrunkenWorldThatFailsIsFormedAnew) {
  can_shrink_ = true;
  StartWorld(3);
  Lost(2);
  EXPECT_EQ(The(Kind::kPrepare).shrinks, 1);
  Broken(1, 2);
  Broken(3, 2);
  ExpectPrepare(3, true, false, {1, 3});
  EXPECT_EQ(The(Kind::kPrepare).shrinks, 0);
  Offer({1, 3}, 3);
  EXPECT_EQ(The(Kind::kOffers).generation, 3);
}

TEST_F(MembershipFailureTest, OnlyMembersOfTheLostWorldGoOnWithoutOffers) {
  can_shrink_ = true;
  StartWorld(3);
  // Joiners must connect.
  Ready(4);
  Lost(2);
  ExpectPrepare(3, true, false, {1, 3, 4});
  EXPECT_EQ(The(Kind::kPrepare).shrinks, 0);
  Answer(3, {1, 3, 4});
  Level(1, 3);
  // After a switch some are in the old world, some in the new one.
  Leave(4);
  Answer(4, {1, 3});
  Lost(4);
  ExpectPrepare(5, true, false, {1, 3});
  EXPECT_EQ(The(Kind::kPrepare).shrinks, 0);
  Answer(5, {1, 3});
  Level(1, 5);
  // A world that broke without a loss is not trusted.
  Broken(1, 5);
  Broken(3, 5);
  ExpectPrepare(6, true, false, {1, 3});
  EXPECT_EQ(The(Kind::kPrepare).shrinks, 0);
}

TEST_F(MembershipFailureTest, WithoutALevelWorkerItIsCold) {
  StartWorld(1);
  Ready(2);
  Lost(1);
  ExpectPrepare(3, true, true, {2});
  EXPECT_FALSE(m_->HasLevelMember());
}

TEST_F(MembershipFailureTest, ALostJoinerDoesNotDisturbTraining) {
  StartWorld(2);
  Ready(3);
  Ready(4);
  Offer({1, 3}, 2);
  Lost(3);
  ExpectPrepare(3, false, false, {1, 2, 4});
  EXPECT_EQ(m_->active_generation(), 1);
}

TEST_F(MembershipFailureTest, ALostOldMemberTakesThePreparationWithIt) {
  StartWorld(2);
  Ready(3);
  Offer({1, 2, 3}, 2);
  Lost(1);
  ExpectPrepare(3, true, false, {2, 3});
}

TEST_F(MembershipFailureTest, ALostJoinerAfterTheSwitchIsUrgent) {
  StartWorld(2);
  Ready(3);
  Answer(2, {1, 2, 3});
  Lost(3);
  ExpectPrepare(3, true, false, {1, 2});
}

TEST_F(MembershipFailureTest, LeaversAreReleasedByACrash) {
  StartWorld(3);
  Leave(1);
  Lost(3);
  EXPECT_EQ(The(Kind::kRelease).worker_id, 1);
  ExpectPrepare(3, true, false, {2});
}

TEST_F(MembershipFailureTest, ACrashKeepsTheLeaverThatIsTheOnlyLevelOne) {
  StartWorld(2);
  Ready(3);
  Leave(1);
  Lost(2);
  ExpectPrepare(3, true, false, {1, 3});
  Answer(3, {1, 3});
  Level(1, 3);
  ExpectPrepare(4, false, false, {3});
}

TEST_F(MembershipFailureTest, ALossBelowTheMinimumDissolvesTheWorld) {
  StartWorld(2, 2);
  Lost(1);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kDissolve, Kind::kWaiting));
  EXPECT_THAT(The(Kind::kDissolve).to, ElementsAre(2));
  EXPECT_TRUE(m_->HasLevelMember());
  Ready(3);
  ExpectPrepare(2, true, false, {2, 3});
}

TEST_F(MembershipFailureTest, TheLossOfAllIsColdAgain) {
  StartWorld(2);
  Lost(1);
  Lost(2);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kWaiting));
  Ready(3);
  ExpectPrepare(3, true, true, {3});
}

TEST_F(MembershipFailureTest, AHigherMinimumDissolvesTheWorld) {
  StartWorld(2);
  Got(m_->SetLimits(now_, 3, 0));
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kDissolve, Kind::kWaiting));
}

// ---- broken ----

TEST_F(MembershipFailureTest, ABreakWaitsForNewsOfADeath) {
  StartWorld(3);
  Broken(1, 1, 2);
  EXPECT_THAT(last_, IsEmpty());
  EXPECT_EQ(m_->NextTimer(), now_ + kGrace);
  now_ += absl::Milliseconds(10);
  Lost(2);
  ExpectPrepare(2, true, false, {1, 3});
  EXPECT_EQ(m_->NextTimer(), now_ + kTimeout);
  Answer(2, {1, 3});
  Level(1, 2);
  // Nobody trained since the break.
  EXPECT_EQ(The(Kind::kActive).pause, absl::Milliseconds(10));
}

TEST_F(MembershipFailureTest, ABreakWithoutADeathFormsTheSameWorld) {
  StartWorld(3);
  Broken(1, 1);
  Advance(kGrace);
  ExpectPrepare(2, true, false, {1, 2, 3});
}

TEST_F(MembershipFailureTest, WhenAllSayThatItBrokeThereIsNothingToWaitFor) {
  StartWorld(3);
  Broken(1, 1);
  Broken(1, 1);
  Broken(2, 1);
  EXPECT_THAT(last_, IsEmpty());
  Broken(3, 1);
  ExpectPrepare(2, true, false, {1, 2, 3});
}

TEST_F(MembershipFailureTest, TheThirdBreakEvictsTheMostAccused) {
  StartWorld(3);
  for (int64_t g = 1; g <= 3; ++g) {
    if (g > 1) {
      ExpectPrepare(g, true, false, {1, 2, 3});
      Answer(g, {1, 2, 3});
      if (g == 2) Level(1, g);
    }
    Broken(1, g, 2);
    Broken(2, g, 1);
    Broken(3, g, 2);
  }
  EXPECT_EQ(The(Kind::kEvict).worker_id, 2);
  ExpectPrepare(4, true, false, {1, 3});
}

TEST_F(MembershipFailureTest, TheThirdBreakWithoutAnAccusedEvictsTheReporter) {
  StartWorld(3);
  for (int64_t g = 1; g <= 3; ++g) {
    if (g > 1) Answer(g, {1, 2, 3});
    Broken(2, g);
    Advance(kGrace);
  }
  EXPECT_EQ(The(Kind::kEvict).worker_id, 2);
}

TEST_F(MembershipFailureTest, AStepForgivesBreaks) {
  StartWorld(2);
  for (int64_t g = 1; g <= 6; ++g) {
    if (g > 1) {
      Answer(g, {1, 2});
      Level(1, g);
      m_->Stepped(g);
    }
    Broken(1, g, 2);
    Advance(kGrace);
    ExpectPrepare(g + 1, true, false, {1, 2});
  }
}

// Others accuse the only one with the trained model: rather they go.
TEST_F(MembershipFailureTest, TheOnlyLevelOneIsNotEvictedForABreak) {
  StartWorld(1);
  Ready(2);
  Answer(2, {1, 2});  // switch
  for (int64_t g = 2; g <= 4; ++g) {
    if (g > 2) Answer(g, {1, 2});
    Broken(2, g, 1);
    Advance(kGrace);
  }
  EXPECT_EQ(The(Kind::kEvict).worker_id, 2);
  ExpectPrepare(5, true, false, {1});
}

TEST_F(MembershipFailureTest, ABreakOfTheActiveWorldEndsThePreparation) {
  StartWorld(2);
  Ready(3);
  Offer({1, 2, 3}, 2);
  Broken(1, 1);
  Connect({1, 2, 3}, 2);
  EXPECT_THAT(last_, IsEmpty());  // no switch
  Advance(kGrace);
  ExpectPrepare(3, true, false, {1, 2, 3});
}

TEST_F(MembershipFailureTest, ABreakAfterTheSwitchIsUrgent) {
  for (const int64_t g : {1, 2}) {
    StartWorld(2);
    Ready(3);
    Answer(2, {1, 2, 3});
    Broken(2, g);
    Advance(kGrace);
    ExpectPrepare(3, true, false, {1, 2, 3});
  }
}

// The others went over while its last step failed.
TEST_F(MembershipFailureTest, ALeaversBreakAfterTheSwitchIsNoNews) {
  StartWorld(3);
  Leave(3);
  Answer(2, {1, 2});
  Broken(3, 1);
  Advance(kGrace);
  EXPECT_THAT(last_, IsEmpty());
  Level(1, 2);
  EXPECT_EQ(m_->active_generation(), 2);
}

TEST_F(MembershipFailureTest, ABreakOfTheOldWorldIsHistoryWhenTheNewIsLevel) {
  StartWorld(2);
  Ready(3);
  Answer(2, {1, 2, 3});
  Broken(2, 1);
  Level(1, 2);
  Advance(kGrace);
  EXPECT_THAT(last_, IsEmpty());
  EXPECT_EQ(m_->active_generation(), 2);
}

TEST_F(MembershipFailureTest, ABreakOfTheNewWorldOutlivesItsLevel) {
  StartWorld(2);
  Ready(3);
  Answer(2, {1, 2, 3});
  Broken(3, 2);
  Level(1, 2);
  EXPECT_EQ(m_->active_generation(), 2);
  Advance(kGrace);
  ExpectPrepare(3, true, false, {1, 2, 3});
}

// ---- late in an urgent world ----

TEST_F(MembershipFailureTest, WhoMakesNoOfferIsEvicted) {
  StartWorld(4);
  Lost(4);
  Offer(2, 2);
  Advance(kTimeout);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kEvict, Kind::kEvict, Kind::kPrepare));
  ExpectPrepare(3, true, false, {2});
  EXPECT_THAT(The(Kind::kPrepare).reason, HasSubstr("worker 4 lost"));
}

TEST_F(MembershipFailureTest, WhoDoesNotConnectIsEvicted) {
  StartWorld(4);
  Lost(4);
  Offer({1, 2, 3}, 2);
  Connect({1, 3}, 2);
  Advance(kTimeout);
  EXPECT_EQ(The(Kind::kEvict).worker_id, 2);
  ExpectPrepare(3, true, false, {1, 3});
}

TEST_F(MembershipFailureTest, NobodyIsEvictedWhenNobodyConnects) {
  StartWorld(3);
  Lost(3);
  Offer({1, 2}, 2);
  Advance(kTimeout);
  ExpectPrepare(3, true, false, {1, 2});
  EXPECT_THAT(last_, SizeIs(1));
}

TEST_F(MembershipFailureTest, AWorldThatDoesNotGetLevelIsFormedAgain) {
  StartWorld(3);
  Lost(3);
  for (int64_t g = 2; g <= 4; ++g) {
    ExpectPrepare(g, true, false, {1, 2});
    Answer(g, {1, 2});
    Loaded({1, 2}, g);
    // Who waits for a piece of the state gives up before.
    Advance(kLoadTimeout + kTimeout - absl::Seconds(1));
    EXPECT_THAT(last_, IsEmpty());
    Advance(absl::Seconds(1));
  }
  EXPECT_EQ(The(Kind::kEvict).worker_id, 2);
  ExpectPrepare(5, true, false, {1});
}

TEST_F(MembershipFailureTest, ASwitchMayTakeALongStep) {
  StartWorld(2);
  Ready(3);
  Answer(2, {1, 2, 3});
  Loaded({3}, 2);
  Advance(kEnterTimeout - absl::Seconds(1));
  EXPECT_THAT(last_, IsEmpty());
  Advance(absl::Seconds(1));
  ExpectPrepare(3, true, false, {1, 2, 3});
}

TEST_F(MembershipFailureTest, ATimerTooEarlyDoesNothing) {
  StartWorld(3);
  Lost(3);
  for (int i = 0; i < 19; ++i) {
    Advance(absl::Seconds(1));
    EXPECT_THAT(last_, IsEmpty());
  }
}

}  // namespace
}  // namespace elasticdl::rendezvous
