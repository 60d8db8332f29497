// Membership while the members of a new world load state: silence is a fault,
// slowness is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/membership_fixture.h"

namespace elasticdl::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using MembershipLoadTest = MembershipTest;

TEST_F(MembershipLoadTest, ALoadMayTakeHours) {
  Make(2);
  Ready(1);
  Ready(2);
  Answer(1, {1, 2});
  Loaded({2}, 1);
  for (int minute = 0; minute < 180; ++minute) {
    Load(1, 1);
    Advance(absl::Minutes(1));
    EXPECT_THAT(last_, IsEmpty());
  }
  Loaded({1}, 1);
  // Then it goes to the other, which takes as long.
  for (int minute = 0; minute < 180; ++minute) {
    Load(2, 1, LoadStage::kMoving);
    Advance(absl::Minutes(1));
    EXPECT_THAT(last_, IsEmpty());
  }
  Level(1, 1);
  EXPECT_EQ(m_->active_generation(), 1);
  EXPECT_EQ(m_->NextTimer(), absl::InfiniteFuture());
}

TEST_F(MembershipLoadTest, WhoLoadsInSilenceIsEvicted) {
  Make(1);
  Ready(1);
  Answer(1, {1});
  Load(1, 1);
  EXPECT_EQ(m_->NextTimer(), now_ + kLoadTimeout);
  Advance(kLoadTimeout - absl::Seconds(1));
  EXPECT_THAT(last_, IsEmpty());
  Load(1, 1);
  Advance(kLoadTimeout - absl::Seconds(1));
  EXPECT_THAT(last_, IsEmpty());
  Advance(absl::Seconds(1));
  EXPECT_EQ(The(Kind::kEvict).worker_id, 1);
  EXPECT_THAT(The(Kind::kEvict).reason,
              HasSubstr("moved no bytes of the model's state for 2m"));
}

TEST_F(MembershipLoadTest, TheOneThatHangsIsEvictedAndNobodyElse) {
  Make(3);
  for (const int64_t id : {1, 2, 3}) Ready(id);
  Got(m_->SetLimits(now_, 1, 0));
  Answer(1, {1, 2, 3});
  Load(1, 1);
  Loaded({2, 3}, 1);
  Advance(kLoadTimeout);
  EXPECT_EQ(The(Kind::kEvict).worker_id, 1);
  ExpectPrepare(2, true, true, {2, 3});
}

TEST_F(MembershipLoadTest, AJoinerThatHangsDoesNotTakeTheOthersAlong) {
  StartWorld(2);
  Ready(3);
  Answer(2, {1, 2, 3});
  Load(3, 2);
  now_ += absl::Minutes(1);
  Loaded({1, 2}, 2);
  Advance(absl::Minutes(1));
  EXPECT_EQ(The(Kind::kEvict).worker_id, 3);
  ExpectPrepare(3, true, false, {1, 2});
}

TEST_F(MembershipLoadTest, WhoDoesNotComeOverIsEvicted) {
  StartWorld(3);
  Lost(3);
  Answer(2, {1, 2});
  Loaded({1}, 2);
  Advance(kEnterTimeout - absl::Seconds(1));
  EXPECT_THAT(last_, IsEmpty());
  Advance(absl::Seconds(1));
  EXPECT_EQ(The(Kind::kEvict).worker_id, 2);
  EXPECT_THAT(The(Kind::kEvict).reason, HasSubstr("did not enter world 2"));
  ExpectPrepare(3, true, false, {1});
}

// Those who trained are in the same long step, the joiner has nothing to do.
TEST_F(MembershipLoadTest, NobodyIsEvictedForTheStepOfAll) {
  StartWorld(3);
  Lost(3);
  Ready(4);
  Answer(2, {1, 2});
  Advance(kEnterTimeout);
  ExpectPrepare(3, true, false, {1, 2, 4});
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kPrepare));
  Answer(3, {1, 2, 4});
  Loaded({4}, 3);
  Advance(kEnterTimeout);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kPrepare));
}

// Who is behind takes part in that step, too.
TEST_F(MembershipLoadTest, NobodyWhoIsBehindIsEvictedForTheStepOfAll) {
  StartWorld(1);
  Ready(2);
  Answer(2, {1, 2});
  Level(1, 2, {2});
  Ready(3);
  Answer(3, {1, 2, 3});
  Loaded({3}, 3);
  Advance(kEnterTimeout);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kPrepare));
}

// The step is over: one that is behind has come from it.
TEST_F(MembershipLoadTest, WhoIsBehindTellsThatTheStepIsOver) {
  StartWorld(1);
  Ready(2);
  Answer(2, {1, 2});
  Level(1, 2, {2});
  Ready(3);
  Answer(3, {1, 2, 3});
  Loaded({2, 3}, 3);
  Advance(kEnterTimeout);
  EXPECT_EQ(The(Kind::kEvict).worker_id, 1);
}

TEST_F(MembershipLoadTest, AnUrgentWorldIsEnteredBeforeAllAreConnected) {
  Make(2);
  Ready(1);
  Ready(2);
  Offer({1, 2}, 1);
  Connect(1, 1);
  Load(1, 1);
  EXPECT_EQ(m_->NextTimer(), now_ + kTimeout);
  Connect(2, 1);
  EXPECT_EQ(m_->NextTimer(), now_ + kLoadTimeout);
}

TEST_F(MembershipLoadTest, StaleAndUnknownProgressIsIgnored) {
  StartWorld(2);
  Ready(3);
  Load(1, 1);
  Load(1, 2);  // It is in the background yet.
  Load(9, 2);
  Answer(2, {1, 2, 3});
  EXPECT_EQ(m_->NextTimer(), now_ + kEnterTimeout);
  Load(3, 1);
  EXPECT_EQ(m_->NextTimer(), now_ + kEnterTimeout);
  Load(3, 2);
  EXPECT_EQ(m_->NextTimer(), now_ + kLoadTimeout);
}

TEST_F(MembershipLoadTest, TheOneThatWasSilentLongestHasTheNextTimer) {
  Make(3);
  for (const int64_t id : {1, 2, 3}) Ready(id);
  Answer(1, {1, 2, 3});
  const absl::Time start = now_;
  const auto at = [&](int seconds) {
    Advance(start + absl::Seconds(seconds) - now_);
  };
  for (const int64_t id : {3, 1, 2}) {
    at(static_cast<int>(id == 3 ? 0 : id));
    Load(id, 1);
  }
  EXPECT_EQ(m_->NextTimer(), start + kLoadTimeout);
  at(3);
  Load(3, 1);
  EXPECT_EQ(m_->NextTimer(), start + absl::Seconds(1) + kLoadTimeout);
  Loaded({1}, 1);
  EXPECT_EQ(m_->NextTimer(), start + absl::Seconds(2) + kLoadTimeout);
  Loaded({2, 3}, 1);
  // All wait for the donor's state.
  EXPECT_GT(m_->NextTimer(), now_ + kLoadTimeout);
}

}  // namespace
}  // namespace elasticdl::rendezvous
