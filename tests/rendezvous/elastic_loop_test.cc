#include "elasticdl/rendezvous/elastic_loop.h"

#include <gtest/gtest.h>

#include <vector>

namespace elasticdl::rendezvous {
namespace {

constexpr int64_t kMe = 7;

v1::Prepare Prepare(int64_t generation, const std::vector<int64_t>& members,
                    bool urgent) {
  v1::Prepare prepare;
  prepare.set_generation(generation);
  for (const int64_t id : members) prepare.add_members()->set_worker_id(id);
  prepare.set_urgent(urgent);
  return prepare;
}

class ElasticLoopTest : public testing::Test {
 protected:
  // In world 1 with workers 3, 7 and 9, doing rounds.
  void EnterFirst() {
    loop_.Prepare(Prepare(1, {3, kMe, 9}, /*urgent=*/true));
    loop_.Connected(1);
    ASSERT_NE(loop_.ToEnter(), nullptr);
    loop_.Enter();
    loop_.SetStepping(true);
    ASSERT_NE(loop_.world(), nullptr);
  }
  ElasticLoop loop_{kMe};
};

TEST_F(ElasticLoopTest, AnUrgentWorldIsEnteredWhenItIsConnected) {
  loop_.Prepare(Prepare(1, {3, kMe, 9}, /*urgent=*/true));
  EXPECT_EQ(loop_.ToEnter(), nullptr);
  loop_.Connected(1);
  ASSERT_NE(loop_.ToEnter(), nullptr);
  EXPECT_EQ(loop_.ToEnter()->rank, 1);
  EXPECT_EQ(loop_.ToEnter()->size(), 3);
  loop_.Enter();
  EXPECT_EQ(loop_.world()->generation, 1);
  EXPECT_EQ(loop_.ToEnter(), nullptr);
}

TEST_F(ElasticLoopTest, AWorldThatShrinksIsEnteredAtOnce) {
  EnterFirst();
  v1::Prepare prepare = Prepare(2, {kMe, 9}, /*urgent=*/true);
  prepare.set_shrinks(1);
  loop_.Prepare(prepare);
  ASSERT_NE(loop_.ToEnter(), nullptr);
  EXPECT_EQ(loop_.ToEnter()->rank, 0);
  // The next one must be connected again.
  loop_.Enter();
  loop_.Prepare(Prepare(3, {kMe}, /*urgent=*/true));
  EXPECT_EQ(loop_.ToEnter(), nullptr);
}

TEST_F(ElasticLoopTest, WorldsWithoutThisWorkerAreIgnored) {
  loop_.Prepare(Prepare(1, {3, 9}, /*urgent=*/true));
  loop_.Connected(1);
  EXPECT_EQ(loop_.ToEnter(), nullptr);
}

TEST_F(ElasticLoopTest, StaleWorldsAreIgnored) {
  EnterFirst();
  loop_.Prepare(Prepare(3, {3, kMe}, /*urgent=*/true));
  loop_.Prepare(Prepare(2, {kMe}, /*urgent=*/true));
  loop_.Connected(2);
  EXPECT_EQ(loop_.ToEnter(), nullptr);
  loop_.Connected(3);
  EXPECT_EQ(loop_.ToEnter()->generation, 3);
}

TEST_F(ElasticLoopTest, AnUrgentWorldEndsTheOneAtHand) {
  EnterFirst();
  loop_.Prepare(Prepare(2, {3, kMe}, /*urgent=*/true));
  EXPECT_EQ(loop_.world(), nullptr);
}

TEST_F(ElasticLoopTest, APeacefulWorldIsEnteredInTheRoundThatAllAgreeOn) {
  EnterFirst();
  loop_.Prepare(Prepare(2, {3, kMe, 9, 10}, /*urgent=*/false));
  loop_.Connected(2);
  loop_.RoundDone(0);
  EXPECT_EQ(loop_.ToEnter(), nullptr) << "not all members are connected";
  loop_.Switch(2);
  EXPECT_TRUE(loop_.switch_seen());
  EXPECT_EQ(loop_.ToEnter(), nullptr) << "others have not seen it";
  loop_.RoundDone(2);
  EXPECT_EQ(loop_.ToEnter(), nullptr);
  loop_.RoundDone(3);
  ASSERT_NE(loop_.ToEnter(), nullptr);
  loop_.Enter();
  EXPECT_EQ(loop_.world()->generation, 2);
  EXPECT_FALSE(loop_.switch_seen());
}

TEST_F(ElasticLoopTest, WithoutRoundsASwitchNeedsNoAgreement) {
  EnterFirst();
  loop_.Prepare(Prepare(2, {3, kMe, 9, 10}, /*urgent=*/false));
  loop_.Connected(2);
  loop_.SetStepping(false);
  EXPECT_EQ(loop_.ToEnter(), nullptr);
  loop_.Switch(2);
  EXPECT_NE(loop_.ToEnter(), nullptr);
}

TEST_F(ElasticLoopTest, ASwitchWithoutRoundsIsFinal) {
  EnterFirst();
  loop_.SetStepping(false);
  loop_.Prepare(Prepare(2, {3, kMe, 9, 10}, /*urgent=*/false));
  loop_.Switch(2);
  // There is data, but the others may have gone already.
  loop_.SetStepping(true);
  EXPECT_TRUE(loop_.last_round_done());
  loop_.Connected(2);
  ASSERT_NE(loop_.ToEnter(), nullptr);
  loop_.Enter();
  EXPECT_FALSE(loop_.last_round_done());
}

TEST_F(ElasticLoopTest, TheLastRoundIsTheLastEvenIfTheNextWorldIsLate) {
  EnterFirst();
  loop_.Prepare(Prepare(2, {3, kMe, 9, 10}, /*urgent=*/false));
  loop_.Switch(2);
  EXPECT_FALSE(loop_.last_round_done());
  loop_.RoundDone(3);
  EXPECT_TRUE(loop_.last_round_done());
  EXPECT_EQ(loop_.ToEnter(), nullptr);
  loop_.Connected(2);
  EXPECT_NE(loop_.ToEnter(), nullptr);
}

TEST_F(ElasticLoopTest, AJoinerWaitsForTheSwitch) {
  loop_.Prepare(Prepare(5, {3, 9, kMe}, /*urgent=*/false));
  loop_.Connected(5);
  EXPECT_EQ(loop_.ToEnter(), nullptr);
  loop_.Switch(5);
  EXPECT_EQ(loop_.ToEnter()->rank, 2);
}

TEST_F(ElasticLoopTest, ALeaverTakesPartUntilTheSwitch) {
  EnterFirst();
  loop_.Switch(2);
  EXPECT_NE(loop_.world(), nullptr);
  EXPECT_FALSE(loop_.left());
  loop_.RoundDone(3);
  EXPECT_EQ(loop_.world(), nullptr);
  EXPECT_TRUE(loop_.left());
}

TEST_F(ElasticLoopTest, AFailureIsToldUnlessTheMasterKnows) {
  EnterFirst();
  EXPECT_FALSE(loop_.Failed(4)) << "another world";
  EXPECT_TRUE(loop_.Failed(1));
  EXPECT_EQ(loop_.world(), nullptr);
  EXPECT_FALSE(loop_.Failed(1)) << "told once";
}

TEST_F(ElasticLoopTest, AFailureVoidsThePeacefulSuccessor) {
  EnterFirst();
  loop_.Prepare(Prepare(2, {3, kMe, 9, 10}, /*urgent=*/false));
  loop_.Connected(2);
  EXPECT_TRUE(loop_.Failed(1));
  loop_.Switch(2);
  EXPECT_EQ(loop_.ToEnter(), nullptr);
  loop_.Prepare(Prepare(3, {3, kMe}, /*urgent=*/true));
  loop_.Connected(3);
  EXPECT_EQ(loop_.ToEnter()->generation, 3);
}

TEST_F(ElasticLoopTest, DissolvingEndsWhatIsThereAndWhatWasToCome) {
  EnterFirst();
  loop_.Prepare(Prepare(2, {3, kMe}, /*urgent=*/false));
  loop_.Connected(2);
  loop_.Dissolve(2);
  EXPECT_EQ(loop_.world(), nullptr);
  loop_.Switch(2);
  EXPECT_EQ(loop_.ToEnter(), nullptr);
}

}  // namespace
}  // namespace elasticdl::rendezvous
