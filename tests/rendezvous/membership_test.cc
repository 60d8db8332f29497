// Membership: one case per rule.
#include "elasticdl/rendezvous/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace elasticdl::rendezvous {
namespace {

using Kind = MembershipDecision::Kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr absl::Duration kTimeout = absl::Seconds(20);
constexpr absl::Duration kGrace = absl::Milliseconds(500);

std::vector<int64_t> Ids(const std::vector<WorldMember>& members) {
  std::vector<int64_t> ids;
  for (const WorldMember& member : members) ids.push_back(member.worker_id);
  return ids;
}

// Drives a Membership; `last` has the decisions of the last event. Each
// decision must have a reason.
class MembershipTest : public ::testing::Test {
 protected:
  void Make(int64_t min_workers = 1, int64_t max_workers = 0) {
    MembershipOptions options;
    options.min_workers = min_workers;
    options.max_workers = max_workers;
    m_.emplace(options);
  }

  void Got(Membership::Decisions decisions) {
    last_ = std::move(decisions);
    for (const MembershipDecision& d : last_) EXPECT_FALSE(d.reason.empty());
  }
  void Ready(int64_t id) { Got(m_->Ready(now_, id, absl::StrCat("host", id))); }
  void Leave(int64_t id) { Got(m_->Leave(now_, id)); }
  void Lost(int64_t id) { Got(m_->Lost(now_, id, "stream closed")); }
  void Offer(int64_t id, int64_t g) {
    Got(m_->Offered(now_, id, g, absl::StrCat("offer", id)));
  }
  void Connect(int64_t id, int64_t g) { Got(m_->Connected(now_, id, g)); }
  void Level(int64_t id, int64_t g) { Got(m_->Level(now_, id, g)); }
  void Broken(int64_t id, int64_t g, int64_t accused = -1) {
    Got(m_->Broken(now_, id, g, accused, "connection reset"));
  }
  void Offer(std::vector<int64_t> ids, int64_t g) {
    for (const int64_t id : ids) Offer(id, g);
  }
  void Connect(std::vector<int64_t> ids, int64_t g) {
    for (const int64_t id : ids) Connect(id, g);
  }
  void Advance(absl::Duration by) {
    now_ += by;
    Got(m_->OnTimer(now_));
  }
  // All members answer; for a background world up to the switch.
  void Answer(int64_t g, std::vector<int64_t> ids) {
    Offer(ids, g);
    Connect(ids, g);
  }
  // World 1 of workers 1..n trains.
  void StartWorld(int n, int64_t min_workers = 1, int64_t max_workers = 0) {
    Make(n, max_workers);
    std::vector<int64_t> ids;
    for (int64_t id = 1; id <= n; ++id) {
      Ready(id);
      ids.push_back(id);
    }
    Answer(1, ids);
    Level(1, 1);
    ASSERT_EQ(m_->active_generation(), 1);
    Got(m_->SetLimits(now_, min_workers, max_workers));
    ASSERT_THAT(last_, IsEmpty());
    m_->Stepped(1);
  }

  std::vector<Kind> Kinds() const {
    std::vector<Kind> kinds;
    for (const MembershipDecision& d : last_) kinds.push_back(d.kind);
    return kinds;
  }
  // The only decision of that kind in the last event.
  MembershipDecision The(Kind kind) const {
    MembershipDecision found;
    found.generation = -1;
    int count = 0;
    for (const MembershipDecision& d : last_) {
      if (d.kind != kind) continue;
      found = d;
      ++count;
    }
    EXPECT_EQ(count, 1) << "kind " << static_cast<int>(kind);
    return found;
  }
  void ExpectPrepare(int64_t g, bool urgent, bool cold,
                     std::vector<int64_t> ids) {
    const MembershipDecision prepare = The(Kind::kPrepare);
    EXPECT_EQ(prepare.generation, g);
    EXPECT_EQ(prepare.urgent, urgent);
    EXPECT_EQ(prepare.cold, cold);
    EXPECT_EQ(Ids(prepare.members), ids);
    EXPECT_EQ(prepare.to, ids);
  }

  std::optional<Membership> m_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  Membership::Decisions last_;
};

// ---- start ----

TEST_F(MembershipTest, StartsColdAsSoonAsTheMinimumIsThere) {
  Make(2);
  Ready(7);
  EXPECT_EQ(The(Kind::kWaiting).reason, "1 of at least 2 workers are here");
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
  EXPECT_EQ(The(Kind::kWaiting).reason, "2 of at least 3 workers are here");
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
  EXPECT_EQ(The(Kind::kWaiting).reason, "2 of at least 3 workers are here");
  EXPECT_TRUE(m_->IsLevel(3));
  now_ += absl::Seconds(7);
  Ready(4);
  ExpectPrepare(2, true, false, {1, 3, 4});
  Answer(2, {1, 3, 4});
  Level(1, 2);
  EXPECT_EQ(The(Kind::kActive).pause, absl::Seconds(7));
  EXPECT_EQ(The(Kind::kActive).reason, "3 of at least 3 workers are here");
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

// ---- loss ----

TEST_F(MembershipTest, ALossMakesAnUrgentWorldAtOnce) {
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

TEST_F(MembershipTest, ALossInEachPhaseOfAnUrgentWorldFormsTheNext) {
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

TEST_F(MembershipTest, WithoutALevelWorkerItIsCold) {
  StartWorld(1);
  Ready(2);
  Lost(1);
  ExpectPrepare(3, true, true, {2});
  EXPECT_FALSE(m_->HasLevelMember());
}

TEST_F(MembershipTest, ALostJoinerDoesNotDisturbTraining) {
  StartWorld(2);
  Ready(3);
  Ready(4);
  Offer({1, 3}, 2);
  Lost(3);
  ExpectPrepare(3, false, false, {1, 2, 4});
  EXPECT_EQ(m_->active_generation(), 1);
}

TEST_F(MembershipTest, ALostOldMemberTakesThePreparationWithIt) {
  StartWorld(2);
  Ready(3);
  Offer({1, 2, 3}, 2);
  Lost(1);
  ExpectPrepare(3, true, false, {2, 3});
}

TEST_F(MembershipTest, ALostJoinerAfterTheSwitchIsUrgent) {
  StartWorld(2);
  Ready(3);
  Answer(2, {1, 2, 3});
  Lost(3);
  ExpectPrepare(3, true, false, {1, 2});
}

TEST_F(MembershipTest, LeaversAreReleasedByACrash) {
  StartWorld(3);
  Leave(1);
  Lost(3);
  EXPECT_EQ(The(Kind::kRelease).worker_id, 1);
  ExpectPrepare(3, true, false, {2});
}

TEST_F(MembershipTest, ACrashKeepsTheLeaverThatIsTheOnlyLevelOne) {
  StartWorld(2);
  Ready(3);
  Leave(1);
  Lost(2);
  ExpectPrepare(3, true, false, {1, 3});
  Answer(3, {1, 3});
  Level(1, 3);
  ExpectPrepare(4, false, false, {3});
}

TEST_F(MembershipTest, ALossBelowTheMinimumDissolvesTheWorld) {
  StartWorld(2, 2);
  Lost(1);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kDissolve, Kind::kWaiting));
  EXPECT_THAT(The(Kind::kDissolve).to, ElementsAre(2));
  EXPECT_TRUE(m_->HasLevelMember());
  Ready(3);
  ExpectPrepare(2, true, false, {2, 3});
}

TEST_F(MembershipTest, TheLossOfAllIsColdAgain) {
  StartWorld(2);
  Lost(1);
  Lost(2);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kWaiting));
  Ready(3);
  ExpectPrepare(3, true, true, {3});
}

TEST_F(MembershipTest, AHigherMinimumDissolvesTheWorld) {
  StartWorld(2);
  Got(m_->SetLimits(now_, 3, 0));
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kDissolve, Kind::kWaiting));
}

// ---- broken ----

TEST_F(MembershipTest, ABreakWaitsForNewsOfADeath) {
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

TEST_F(MembershipTest, ABreakWithoutADeathFormsTheSameWorld) {
  StartWorld(3);
  Broken(1, 1);
  Advance(kGrace);
  ExpectPrepare(2, true, false, {1, 2, 3});
}

TEST_F(MembershipTest, WhenAllSayThatItBrokeThereIsNothingToWaitFor) {
  StartWorld(3);
  Broken(1, 1);
  Broken(1, 1);
  Broken(2, 1);
  EXPECT_THAT(last_, IsEmpty());
  Broken(3, 1);
  ExpectPrepare(2, true, false, {1, 2, 3});
}

TEST_F(MembershipTest, TheThirdBreakEvictsTheMostAccused) {
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

TEST_F(MembershipTest, TheThirdBreakWithoutAnAccusedEvictsTheReporter) {
  StartWorld(3);
  for (int64_t g = 1; g <= 3; ++g) {
    if (g > 1) Answer(g, {1, 2, 3});
    Broken(2, g);
    Advance(kGrace);
  }
  EXPECT_EQ(The(Kind::kEvict).worker_id, 2);
}

TEST_F(MembershipTest, AStepForgivesBreaks) {
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
TEST_F(MembershipTest, TheOnlyLevelOneIsNotEvictedForABreak) {
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

TEST_F(MembershipTest, ABreakOfTheActiveWorldEndsThePreparation) {
  StartWorld(2);
  Ready(3);
  Offer({1, 2, 3}, 2);
  Broken(1, 1);
  Connect({1, 2, 3}, 2);
  EXPECT_THAT(last_, IsEmpty());  // no switch
  Advance(kGrace);
  ExpectPrepare(3, true, false, {1, 2, 3});
}

TEST_F(MembershipTest, ABreakAfterTheSwitchIsUrgent) {
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
TEST_F(MembershipTest, ALeaversBreakAfterTheSwitchIsNoNews) {
  StartWorld(3);
  Leave(3);
  Answer(2, {1, 2});
  Broken(3, 1);
  Advance(kGrace);
  EXPECT_THAT(last_, IsEmpty());
  Level(1, 2);
  EXPECT_EQ(m_->active_generation(), 2);
}

TEST_F(MembershipTest, ABreakOfTheOldWorldIsHistoryWhenTheNewIsLevel) {
  StartWorld(2);
  Ready(3);
  Answer(2, {1, 2, 3});
  Broken(2, 1);
  Level(1, 2);
  Advance(kGrace);
  EXPECT_THAT(last_, IsEmpty());
  EXPECT_EQ(m_->active_generation(), 2);
}

TEST_F(MembershipTest, ABreakOfTheNewWorldOutlivesItsLevel) {
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

TEST_F(MembershipTest, WhoMakesNoOfferIsEvicted) {
  StartWorld(4);
  Lost(4);
  Offer(2, 2);
  Advance(kTimeout);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kEvict, Kind::kEvict, Kind::kPrepare));
  ExpectPrepare(3, true, false, {2});
  EXPECT_THAT(The(Kind::kPrepare).reason, HasSubstr("worker 4 lost"));
}

TEST_F(MembershipTest, WhoDoesNotConnectIsEvicted) {
  StartWorld(4);
  Lost(4);
  Offer({1, 2, 3}, 2);
  Connect({1, 3}, 2);
  Advance(kTimeout);
  EXPECT_EQ(The(Kind::kEvict).worker_id, 2);
  ExpectPrepare(3, true, false, {1, 3});
}

TEST_F(MembershipTest, NobodyIsEvictedWhenNobodyConnects) {
  StartWorld(3);
  Lost(3);
  Offer({1, 2}, 2);
  Advance(kTimeout);
  ExpectPrepare(3, true, false, {1, 2});
  EXPECT_THAT(last_, SizeIs(1));
}

TEST_F(MembershipTest, AWorldThatDoesNotGetLevelIsFormedAgain) {
  StartWorld(3);
  Lost(3);
  for (int64_t g = 2; g <= 4; ++g) {
    ExpectPrepare(g, true, false, {1, 2});
    Answer(g, {1, 2});
    Advance(kTimeout);
  }
  EXPECT_EQ(The(Kind::kEvict).worker_id, 2);
  ExpectPrepare(5, true, false, {1});
}

TEST_F(MembershipTest, ASwitchMayTakeALongStep) {
  StartWorld(2);
  Ready(3);
  Answer(2, {1, 2, 3});
  Advance(absl::Minutes(10) - absl::Seconds(1));
  EXPECT_THAT(last_, IsEmpty());
  Advance(absl::Seconds(1));
  ExpectPrepare(3, true, false, {1, 2, 3});
}

TEST_F(MembershipTest, ATimerTooEarlyDoesNothing) {
  StartWorld(3);
  Lost(3);
  for (int i = 0; i < 19; ++i) {
    Advance(absl::Seconds(1));
    EXPECT_THAT(last_, IsEmpty());
  }
}

}  // namespace
}  // namespace elasticdl::rendezvous
