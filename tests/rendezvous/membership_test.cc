// Membership when workers come and leave: one case per rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/membership_fixture.h"

namespace elasticdl::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// ---- start ----

TEST_F(MembershipTest, StartsColdAsSoonAsTheMinimumIsThere) {
  Make(2);
  Ready(7);
  EXPECT_EQ(The(Kind::kWaiting).reason, "1 of at least 2 workers ready");
  EXPECT_EQ(m_->NextTimer(), absl::InfiniteFuture());
  Ready(3);
  ExpectPrepare(1, true, true, {7, 3});
  EXPECT_EQ(The(Kind::kPrepare).members[1].host, "host3");
  EXPECT_EQ(m_->NextTimer(), now_ + kTimeout);
  Offer(3, 1);
  EXPECT_THAT(last_, IsEmpty());
  Offer(7, 1);
  EXPECT_THAT(The(Kind::kOffers).offers, ElementsAre("offer7", "offer3"));
  EXPECT_THAT(The(Kind::kOffers).to, ElementsAre(7, 3));
  Connect({7, 3}, 1);
  EXPECT_THAT(last_, IsEmpty());
  EXPECT_EQ(m_->active_generation(), 0);
  EXPECT_FALSE(m_->HasLevelMember());
  Level(7, 1);
  EXPECT_EQ(The(Kind::kActive).reason, "start");
  EXPECT_EQ(The(Kind::kActive).pause, absl::ZeroDuration());
  EXPECT_EQ(m_->active_generation(), 1);
  EXPECT_THAT(Ids(m_->active_members()), ElementsAre(7, 3));
  EXPECT_TRUE(m_->IsLevel(3));
  EXPECT_EQ(m_->NextTimer(), absl::InfiniteFuture());
}

TEST_F(MembershipTest, GenerationsGoOnWhereTheyWereLeft) {
  m_.emplace(MembershipOptions(), 41);
  Ready(1);
  ExpectPrepare(41, true, true, {1});
}

TEST_F(MembershipTest, LateComersDoNotDisturbTheStart) {
  Make(1);
  Ready(1);
  Ready(2);
  Ready(3);
  EXPECT_THAT(last_, IsEmpty());
  Answer(1, {1});
  Level(1, 1);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kActive, Kind::kPrepare));
  ExpectPrepare(2, false, false, {1, 2, 3});
}

TEST_F(MembershipTest, WaitingIsSaidOncePerReason) {
  Make(3);
  Ready(1);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kWaiting));
  Got(m_->OnTimer(now_));
  EXPECT_THAT(last_, IsEmpty());
  Ready(2);
  EXPECT_EQ(The(Kind::kWaiting).reason, "2 of at least 3 workers ready");
  Got(m_->SetLimits(now_, 2, 0));
  ExpectPrepare(1, true, true, {1, 2});
}

// The donor may be heard before another member's Connected().
TEST_F(MembershipTest, LevelImpliesConnectedInAnUrgentWorld) {
  Make(2);
  Ready(1);
  Ready(2);
  Offer({1, 2}, 1);
  Connect(1, 1);
  Level(1, 1);
  EXPECT_EQ(m_->active_generation(), 1);
  Connect(2, 1);
  EXPECT_THAT(last_, IsEmpty());
}

TEST_F(MembershipTest, StaleAndUnknownEventsAreIgnored) {
  StartWorld(2);
  Offer(1, 1);
  Offer(1, 2);
  Offer(9, 1);
  Connect(1, 1);
  Level(2, 1);
  Level(1, 5);
  Broken(1, 0);
  Broken(9, 1);
  Lost(9);
  Leave(9);
  Ready(1);
  EXPECT_THAT(last_, IsEmpty());
  EXPECT_EQ(m_->active_generation(), 1);
  EXPECT_EQ(m_->NextTimer(), absl::InfiniteFuture());
}

TEST_F(MembershipTest, CheckActiveFencesTheOthers) {
  StartWorld(2);
  Ready(3);
  EXPECT_TRUE(m_->CheckActive(1, 1).ok());
  EXPECT_EQ(m_->CheckActive(1, 2).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(m_->CheckActive(3, 1).code(),
            absl::StatusCode::kFailedPrecondition);
  Lost(2);
  EXPECT_EQ(m_->CheckActive(1, 1).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(m_->active_generation(), 0);
}

// ---- join ----

TEST_F(MembershipTest, AJoinTakesTheBackground) {
  StartWorld(2);
  Ready(3);
  ExpectPrepare(2, false, false, {1, 2, 3});
  EXPECT_EQ(m_->active_generation(), 1);
  Level(1, 2);  // not before the switch
  EXPECT_EQ(m_->active_generation(), 1);
  Offer({3, 2, 1}, 2);
  Connect({1, 3}, 2);
  EXPECT_THAT(last_, IsEmpty());
  Connect(2, 2);
  EXPECT_THAT(The(Kind::kSwitch).to, ElementsAre(1, 2, 3));
  EXPECT_EQ(m_->active_generation(), 1);
  EXPECT_EQ(m_->NextTimer(), now_ + absl::Minutes(10));
  Level(2, 2);
  EXPECT_EQ(The(Kind::kActive).reason, "worker 3 joined");
  EXPECT_EQ(The(Kind::kActive).pause, absl::ZeroDuration());
  EXPECT_EQ(m_->active_generation(), 2);
  EXPECT_TRUE(m_->IsLevel(3));
}

TEST_F(MembershipTest, SeveralJoinsAreTakenTogether) {
  StartWorld(1);
  Ready(2);
  Ready(3);
  Ready(4);
  EXPECT_THAT(last_, IsEmpty());
  Answer(2, {1, 2});
  Level(1, 2);
  ExpectPrepare(3, false, false, {1, 2, 3, 4});
  Answer(3, {1, 2, 3, 4});
  Level(1, 3);
  EXPECT_EQ(The(Kind::kActive).reason, "workers 3, 4 joined");
}

TEST_F(MembershipTest, AboveTheMaximumIsStandby) {
  StartWorld(2, 1, 2);
  Ready(3);
  Ready(4);
  EXPECT_THAT(last_, IsEmpty());
  Got(m_->SetLimits(now_, 1, 3));
  ExpectPrepare(2, false, false, {1, 2, 3});
  Lost(3);
  ExpectPrepare(3, false, false, {1, 2, 4});
}

TEST_F(MembershipTest, ALowerMaximumEvictsNobody) {
  StartWorld(3);
  Got(m_->SetLimits(now_, 1, 2));
  EXPECT_THAT(last_, IsEmpty());
  EXPECT_EQ(m_->active_generation(), 1);
}

// It falls behind: its model must not be taken for the trained one later.
TEST_F(MembershipTest, WhoHasNoRoomInTheNextWorldIsNotLevelAnyMore) {
  StartWorld(4);
  Got(m_->SetLimits(now_, 1, 2));
  Lost(1);
  EXPECT_THAT(The(Kind::kDissolve).to, ElementsAre(4));
  ExpectPrepare(2, true, false, {2, 3});
  EXPECT_TRUE(m_->IsLevel(4));
  Answer(2, {2, 3});
  Level(2, 2);
  EXPECT_FALSE(m_->IsLevel(4));
  Lost(2);
  Lost(3);
  ExpectPrepare(4, true, true, {4});
}

TEST_F(MembershipTest, ALateJoinerIsEvicted) {
  StartWorld(2);
  Ready(3);
  Ready(4);
  Offer({1, 2}, 2);
  Advance(kTimeout);
  EXPECT_EQ(The(Kind::kEvict).worker_id, 3);
  ExpectPrepare(3, false, false, {1, 2, 4});
  Offer({1, 2, 4}, 3);
  Connect({1, 2}, 3);
  Advance(kTimeout - absl::Milliseconds(1));
  EXPECT_THAT(last_, IsEmpty());
  Advance(absl::Milliseconds(1));
  EXPECT_EQ(The(Kind::kEvict).worker_id, 4);
  EXPECT_THAT(last_, SizeIs(1));
  EXPECT_EQ(m_->active_generation(), 1);
}

TEST_F(MembershipTest, ALateOldMemberDelaysAndIsEvictedTheThirdTime) {
  StartWorld(2);
  Ready(3);
  for (int64_t g = 2; g <= 4; ++g) {
    ExpectPrepare(g, false, false, {1, 2, 3});
    Offer({1, 3}, g);
    Advance(kTimeout);
    if (g == 4) break;
    EXPECT_THAT(last_, IsEmpty());
    EXPECT_EQ(m_->active_generation(), 1);
    EXPECT_EQ(m_->NextTimer(), now_ + kGrace * (g - 1));
    Advance(m_->NextTimer() - now_);
  }
  EXPECT_EQ(The(Kind::kEvict).worker_id, 2);
  ExpectPrepare(5, true, false, {1, 3});
}

// One hanging member keeps all others from connecting.
TEST_F(MembershipTest, WhenNobodyConnectsInTheBackgroundTheJoinerGoes) {
  StartWorld(2);
  Ready(3);
  for (int64_t g = 2; g <= 4; ++g) {
    EXPECT_TRUE(m_->Knows(3));
    Offer({1, 2, 3}, g);
    Advance(kTimeout);
    if (g < 4) Advance(m_->NextTimer() - now_);
  }
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kEvict));
  EXPECT_FALSE(m_->Knows(3));
  EXPECT_EQ(m_->active_generation(), 1);
}

TEST_F(MembershipTest, AnAccusedJoinerIsEvictedTheThirdTime) {
  StartWorld(2);
  Ready(3);
  for (int64_t g = 2; g <= 4; ++g) {
    Offer({1, 2, 3}, g);
    Broken(1, g, 3);
    if (g == 4) break;
    EXPECT_THAT(last_, IsEmpty());
    Advance(m_->NextTimer() - now_);
    ExpectPrepare(g + 1, false, false, {1, 2, 3});
  }
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kEvict));
  EXPECT_EQ(The(Kind::kEvict).worker_id, 3);
  EXPECT_EQ(m_->active_generation(), 1);
}

TEST_F(MembershipTest, AJoinerThatBlamesNobodyOrAnOldMemberIsBlamed) {
  for (const int64_t accused : {-1, 2}) {
    StartWorld(2);
    Ready(3);
    for (int64_t g = 2; g <= 4; ++g) {
      Broken(3, g, accused);
      if (g < 4) Advance(m_->NextTimer() - now_);
    }
    EXPECT_EQ(The(Kind::kEvict).worker_id, 3);
    EXPECT_EQ(m_->active_generation(), 1);
  }
}

TEST_F(MembershipTest, AnOldMemberThatOthersAccuseIsEvictedTheThirdTime) {
  StartWorld(3);
  Ready(4);
  for (int64_t g = 2; g <= 4; ++g) {
    Broken(1, g, 2);
    if (g < 4) Advance(m_->NextTimer() - now_);
  }
  EXPECT_EQ(The(Kind::kEvict).worker_id, 2);
  ExpectPrepare(5, true, false, {1, 3, 4});
}

// ---- leave ----

TEST_F(MembershipTest, ALeaverGoesWhenTheOthersAreLevel) {
  StartWorld(3);
  Leave(2);
  ExpectPrepare(2, false, false, {1, 3});
  Leave(2);
  EXPECT_THAT(last_, IsEmpty());
  Offer({1, 3}, 2);
  Connect({1, 3}, 2);
  EXPECT_THAT(The(Kind::kSwitch).to, UnorderedElementsAre(1, 2, 3));
  EXPECT_TRUE(m_->Knows(2));
  Level(3, 2);
  EXPECT_EQ(The(Kind::kActive).reason, "worker 2 left");
  EXPECT_EQ(The(Kind::kRelease).worker_id, 2);
  EXPECT_FALSE(m_->Knows(2));
  Lost(2);
  EXPECT_THAT(last_, IsEmpty());
}

TEST_F(MembershipTest, AStandbyLeaverGoesAtOnce) {
  StartWorld(2, 1, 2);
  Ready(3);
  Leave(3);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kRelease));
}

TEST_F(MembershipTest, LeavesAndJoinsDuringAPreparationComeNext) {
  StartWorld(3);
  Leave(1);
  Leave(2);
  Ready(4);
  EXPECT_THAT(last_, IsEmpty());
  Answer(2, {2, 3});
  Level(2, 2);
  EXPECT_THAT(Kinds(),
              ElementsAre(Kind::kActive, Kind::kRelease, Kind::kPrepare));
  ExpectPrepare(3, false, false, {3, 4});
  EXPECT_EQ(The(Kind::kPrepare).reason, "worker 4 joined; worker 2 left");
}

TEST_F(MembershipTest, TheOnlyLevelLeaverBringsItsSuccessorLevelFirst) {
  StartWorld(1, 1, 1);
  Ready(2);
  EXPECT_THAT(last_, IsEmpty());
  Leave(1);
  ExpectPrepare(2, false, false, {1, 2});
  Answer(2, {1, 2});
  Level(1, 2);
  ExpectPrepare(3, false, false, {2});
  EXPECT_TRUE(m_->Knows(1));
  Answer(3, {2});
  EXPECT_THAT(The(Kind::kSwitch).to, UnorderedElementsAre(1, 2));
  Level(2, 3);
  EXPECT_EQ(The(Kind::kRelease).worker_id, 1);
}

TEST_F(MembershipTest, TheLastLeaverGoesAtOnce) {
  StartWorld(1);
  Leave(1);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kRelease, Kind::kWaiting));
  EXPECT_EQ(m_->active_generation(), 0);
  EXPECT_EQ(m_->num_workers(), 0u);
}

TEST_F(MembershipTest, WhenAllLeaveNobodyWaitsForAnother) {
  StartWorld(3);
  Leave(1);
  Leave(2);
  Leave(3);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kRelease, Kind::kRelease,
                                   Kind::kRelease, Kind::kWaiting));
}

TEST_F(MembershipTest, ALeaveBelowTheMinimumDissolvesTheWorld) {
  StartWorld(3, 3);
  Leave(2);
  EXPECT_THAT(Kinds(),
              ElementsAre(Kind::kRelease, Kind::kDissolve, Kind::kWaiting));
  EXPECT_THAT(The(Kind::kDissolve).to, ElementsAre(1, 3));
  EXPECT_EQ(The(Kind::kDissolve).generation, 1);
  EXPECT_EQ(The(Kind::kWaiting).reason, "2 of at least 3 workers ready");
  EXPECT_TRUE(m_->IsLevel(3));
  now_ += absl::Seconds(7);
  Ready(4);
  ExpectPrepare(2, true, false, {1, 3, 4});
  Answer(2, {1, 3, 4});
  Level(1, 2);
  EXPECT_EQ(The(Kind::kActive).pause, absl::Seconds(7));
  EXPECT_EQ(The(Kind::kActive).reason, "3 of at least 3 workers ready");
}

// Joiners that die one after the other must not keep a leaver.
TEST_F(MembershipTest, FlappingJoinersDoNotKeepALeaver) {
  StartWorld(3);
  Ready(10);
  Leave(3);
  int64_t g = 2;
  for (int64_t id = 10; id < 13; ++id, ++g) {
    Ready(id + 1);
    Lost(id);
  }
  ExpectPrepare(g, false, false, {1, 2});
}

TEST_F(MembershipTest, FlappingJoinersAreTakenIfTheMinimumNeedsThem) {
  StartWorld(3, 3);
  Ready(10);
  Leave(3);
  for (int64_t id = 10; id < 14; ++id) {
    Ready(id + 1);
    Lost(id);
  }
  ExpectPrepare(6, false, false, {1, 2, 14});
}

// The one that the next try waited for is gone.
TEST_F(MembershipTest, ARetryThatIsNotNeededAnyMoreLeavesNoTimer) {
  StartWorld(2);
  Ready(3);
  Broken(1, 2, 3);
  Lost(3);
  EXPECT_EQ(m_->NextTimer(), now_ + kGrace);
  Advance(kGrace);
  EXPECT_THAT(last_, IsEmpty());
  EXPECT_EQ(m_->NextTimer(), absl::InfiniteFuture());
}

// ---- members that are behind ----

TEST_F(MembershipTest, ALeaverStaysUntilAnotherHasTheModel) {
  StartWorld(1);
  Ready(2);
  Answer(2, {1, 2});
  Level(1, 2, {2});
  EXPECT_FALSE(m_->IsLevel(2));
  EXPECT_EQ(m_->num_level(), 1u);
  Leave(1);
  EXPECT_TRUE(last_.empty()) << "only worker 1 has the model";
  CaughtUp(2, 1);
  EXPECT_TRUE(last_.empty()) << "another world";
  CaughtUp(2, 2);
  EXPECT_TRUE(m_->IsLevel(2));
  ExpectPrepare(3, false, false, {2});
  CaughtUp(2, 2);
  EXPECT_TRUE(last_.empty()) << "not news";
  Answer(3, {2});
  Level(2, 3);
  EXPECT_EQ(The(Kind::kRelease).worker_id, 1);
}

TEST_F(MembershipTest, CaughtUpMayOvertakeTheReportThatTheWorldIsLevel) {
  StartWorld(1);
  Ready(2);
  Answer(2, {1, 2});
  CaughtUp(2, 2);
  EXPECT_FALSE(m_->IsLevel(2));
  Level(1, 2, {2});
  EXPECT_TRUE(m_->IsLevel(2));
  EXPECT_EQ(m_->num_level(), 2u);
}

TEST_F(MembershipTest, OtherLeaversNeedNotWait) {
  StartWorld(2);
  Ready(3);
  Answer(2, {1, 2, 3});
  Level(1, 2, {3});
  Leave(1);
  ExpectPrepare(3, false, false, {2, 3});
  Leave(2);
  Answer(3, {2, 3});
  Level(2, 3, {3});
  EXPECT_EQ(The(Kind::kRelease).worker_id, 1);
  CaughtUp(3, 3);
  ExpectPrepare(4, false, false, {3});
}

TEST_F(MembershipTest, WhoHasTheModelComesFirst) {
  StartWorld(1);
  Ready(2);
  Ready(3);
  Answer(2, {1, 2});
  Level(1, 2, {2});
  ExpectPrepare(3, false, false, {1, 2, 3});
  Answer(3, {1, 2, 3});
  // Worker 3 was faster.
  Level(1, 3, {2, 3});
  CaughtUp(3, 3);
  Lost(1);
  ExpectPrepare(4, true, false, {3, 2});
}

TEST_F(MembershipTest, WithTheLastLevelMemberTheModelIsLost) {
  StartWorld(1);
  Ready(2);
  Answer(2, {1, 2});
  Level(1, 2, {2});
  Lost(1);
  EXPECT_FALSE(m_->HasLevelMember());
  ExpectPrepare(3, true, true, {2});
  CaughtUp(2, 2);
  EXPECT_FALSE(m_->HasLevelMember()) << "too late";
}

}  // namespace
}  // namespace elasticdl::rendezvous
