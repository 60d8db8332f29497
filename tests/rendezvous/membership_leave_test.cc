// Membership when nobody stays that has the model: it is saved before they go.
#include <gmock/gmock.h>

#include "rendezvous/membership_fixture.h"

namespace elasticdl::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MembershipLeaveTest : public MembershipTest {
 protected:
  MembershipLeaveTest() { save_last_ = true; }

  // World 1 of workers 1..n trains and all of them ask to leave; the last world
  // is `g`.
  void AllLeave(int n, int64_t g) {
    StartWorld(n);
    for (int64_t id = 1; id <= n; ++id) {
      Leave(id);
      ids_.push_back(id);
    }
    ExpectPrepare(g, true, false, ids_);
    EXPECT_TRUE(The(Kind::kPrepare).last);
    EXPECT_EQ(The(Kind::kPrepare).reason, "all workers are leaving");
  }

  std::vector<int64_t> ids_;
};

TEST_F(MembershipLeaveTest, AllGoWhenTheModelIsSaved) {
  // World 2 was to do without worker 1.
  AllLeave(3, 3);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kPrepare));
  Answer(3, ids_);
  EXPECT_FALSE(m_->InLastWorld());
  Level(1, 3);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kActive));
  EXPECT_TRUE(m_->InLastWorld());
  Saved(1, 2);
  EXPECT_THAT(last_, IsEmpty()) << "another world";
  Saved(1, 3);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kRelease, Kind::kRelease,
                                   Kind::kRelease, Kind::kWaiting));
  EXPECT_EQ(m_->num_workers(), 0u);
  EXPECT_EQ(m_->NextTimer(), absl::InfiniteFuture());
  Saved(1, 3);
  EXPECT_THAT(last_, IsEmpty());
}

TEST_F(MembershipLeaveTest, SoDoesALoneWorker) {
  AllLeave(1, 2);
  Answer(2, {1});
  Level(1, 2);
  Saved(1, 2);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kRelease, Kind::kWaiting));
}

TEST_F(MembershipLeaveTest, AllAreAskedAtOnce) {
  StartWorld(2, 1, 2);
  Ready(3);
  Got(m_->LeaveAll(now_));
  EXPECT_EQ(The(Kind::kRelease).worker_id, 3) << "has nothing to save";
  ExpectPrepare(2, true, false, {1, 2});
  EXPECT_TRUE(The(Kind::kPrepare).last);
}

TEST_F(MembershipLeaveTest, NobodySavesWhenSomebodyStays) {
  StartWorld(3);
  Leave(1);
  Leave(2);
  Answer(2, {2, 3});
  Level(2, 2);
  ExpectPrepare(3, false, false, {3});
  EXPECT_FALSE(The(Kind::kPrepare).last);
  Answer(3, {3});
  Level(3, 3);
  EXPECT_EQ(The(Kind::kRelease).worker_id, 2);
  EXPECT_FALSE(m_->InLastWorld());
}

TEST_F(MembershipLeaveTest, WhoIsLeftSavesWhenOneDies) {
  AllLeave(3, 3);
  Answer(3, ids_);
  Level(1, 3);
  Lost(1);
  ExpectPrepare(4, true, false, {2, 3});
  EXPECT_TRUE(The(Kind::kPrepare).last);
  Saved(2, 3);
  EXPECT_THAT(last_, IsEmpty());
  Lost(2);
  ExpectPrepare(5, true, false, {3});
  Lost(3);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kWaiting));
}

TEST_F(MembershipLeaveTest, AJoinerTakesTheModelOver) {
  AllLeave(2, 3);
  Ready(9);
  EXPECT_THAT(last_, IsEmpty());
  Answer(3, ids_);
  Level(1, 3);
  ExpectPrepare(4, false, false, {1, 9});
  EXPECT_FALSE(The(Kind::kPrepare).last);
  Saved(1, 3);
  EXPECT_THAT(last_, IsEmpty());
  Answer(4, {1, 9});
  Level(1, 4);
  EXPECT_EQ(The(Kind::kRelease).worker_id, 2);
  ExpectPrepare(5, false, false, {9});
}

// The model was saved while it tried, so nobody waits for another save.
TEST_F(MembershipLeaveTest, AllGoWhenTheJoinerDies) {
  AllLeave(2, 3);
  Answer(3, ids_);
  Level(1, 3);
  Ready(9);
  Saved(1, 3);
  Lost(9);
  EXPECT_THAT(Kinds(),
              ElementsAre(Kind::kRelease, Kind::kRelease, Kind::kWaiting));
}

TEST_F(MembershipLeaveTest, TooFewJoinersDoNotTakeItOver) {
  StartWorld(1, 1, 1);
  Ready(9);
  Got(m_->SetLimits(now_, 3, 3));
  EXPECT_EQ(m_->active_generation(), 0);
  Leave(1);
  ExpectPrepare(2, true, false, {1});
  EXPECT_TRUE(The(Kind::kPrepare).last);
  Answer(2, {1});
  Level(1, 2);
  Saved(1, 2);
  EXPECT_FALSE(m_->HasLevelMember());
  EXPECT_TRUE(m_->Knows(9));
}

// It trains with nobody, but it has the model.
TEST_F(MembershipLeaveTest, WhoWaitsForOthersSavesToo) {
  StartWorld(2, 2);
  Lost(2);
  EXPECT_EQ(m_->active_generation(), 0);
  Leave(1);
  ExpectPrepare(2, true, false, {1});
  EXPECT_TRUE(The(Kind::kPrepare).last);
  EXPECT_EQ(The(Kind::kPrepare).reason,
            "all workers that have the model are leaving");
}

TEST_F(MembershipLeaveTest, ASaveThatNeverEndsIsGivenUp) {
  AllLeave(2, 3);
  Answer(3, ids_);
  Level(1, 3);
  EXPECT_EQ(m_->NextTimer(), now_ + absl::Minutes(10));
  Advance(absl::Minutes(10));
  EXPECT_THAT(Kinds(),
              ElementsAre(Kind::kRelease, Kind::kRelease, Kind::kWaiting));
}

TEST_F(MembershipLeaveTest, WithoutAModelThereIsNothingToSave) {
  Make();
  Ready(1);
  ExpectPrepare(1, true, true, {1});
  Leave(1);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kRelease, Kind::kWaiting));
}

}  // namespace
}  // namespace elasticdl::rendezvous
