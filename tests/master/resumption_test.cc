#include "resumption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

class ResumptionTest : public ::testing::Test {
 protected:
  // Workers 0, 1, 2 of the last world; 2 has ended since.
  void Begin() {
    resumption_.Await(0);
    resumption_.Await(1);
    resumption_.Begin({1, 0, 2}, /*deadline=*/At(30), /*step_deadline=*/At(90));
  }
  void Attach(int64_t id) {
    EXPECT_TRUE(resumption_.Take(id));
    streams_.insert(id);
  }
  bool Complete() { return resumption_.Complete(reachable_); }

  std::set<int64_t> streams_;
  const Resumption::Reachable reachable_ = [this](int64_t id) {
    return streams_.count(id) != 0;
  };
  Resumption resumption_;
};

TEST_F(ResumptionTest, WaitsForThoseThatMayStillCome) {
  EXPECT_FALSE(resumption_.waiting());
  EXPECT_FALSE(Complete());
  EXPECT_EQ(resumption_.deadline(), absl::InfiniteFuture());
  Begin();
  EXPECT_TRUE(resumption_.waiting());
  EXPECT_THAT(resumption_.members(), ElementsAre(1, 0));
  EXPECT_EQ(resumption_.deadline(), At(30));
  EXPECT_FALSE(Complete());
}

TEST_F(ResumptionTest, IsCompleteWhenAllAreBack) {
  Begin();
  Attach(0);
  resumption_.CameBack(0, "host-a", 7);
  EXPECT_FALSE(Complete());
  Attach(1);
  EXPECT_FALSE(Complete()) << "it has a stream, but is in its step";
  resumption_.CameBack(1, "host-b", 7);
  EXPECT_TRUE(Complete());
  const Resumption::Outcome outcome = resumption_.End();
  EXPECT_FALSE(resumption_.waiting());
  EXPECT_THAT(outcome.members, ElementsAre(1, 0));
  EXPECT_EQ(outcome.back.at(1).host, "host-b");
  EXPECT_EQ(outcome.back.at(1).step, 7);
}

TEST_F(ResumptionTest, WhoIsDeadIsNotWaitedFor) {
  Begin();
  Attach(0);
  resumption_.CameBack(0, "host-a", 7);
  EXPECT_TRUE(resumption_.Take(1)) << "its pod has ended";
  EXPECT_TRUE(Complete());
}

TEST_F(ResumptionTest, WithoutAStreamItIsGivenUpAtTheDeadline) {
  Begin();
  Attach(0);
  resumption_.CameBack(0, "host-a", 7);
  EXPECT_TRUE(resumption_.OnDeadline(At(30), reachable_));
}

TEST_F(ResumptionTest, WithAStreamItMayEndALongStep) {
  Begin();
  Attach(0);
  EXPECT_FALSE(resumption_.OnDeadline(At(30), reachable_));
  EXPECT_EQ(resumption_.deadline(), At(90));
  // Who has no stream is given up now, and may not come any more.
  EXPECT_FALSE(resumption_.Take(1));
  EXPECT_TRUE(resumption_.OnDeadline(At(90), reachable_));
}

TEST_F(ResumptionTest, AWorkerComesBackOnce) {
  Begin();
  EXPECT_TRUE(resumption_.Take(0));
  EXPECT_FALSE(resumption_.Take(0));
  EXPECT_FALSE(resumption_.Take(7));
  resumption_.AwaitNobody();
  EXPECT_TRUE(resumption_.awaited().empty());
}

TEST_F(ResumptionTest, OthersJoinAfterwards) {
  Begin();
  resumption_.Joined(5, "host-c");
  const Resumption::Outcome outcome = resumption_.End();
  ASSERT_EQ(outcome.joiners.size(), 1u);
  EXPECT_EQ(outcome.joiners[0].worker_id, 5);
}

}  // namespace
}  // namespace elasticdl::master
