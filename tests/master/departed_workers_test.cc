// DepartedWorkers by its table.
#include "departed_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using State = DepartedWorkers::State;

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

DepartedWorkers::Departed Broken(double deadline = 5) {
  DepartedWorkers::Departed departed;
  departed.reason = "stream broken";
  departed.deadline = At(deadline);
  return departed;
}

State StateOf(const DepartedWorkers& departed, int64_t id) {
  return departed.all().at(id).state();
}

std::vector<int64_t> Ids(DepartedWorkers& departed) {
  std::vector<int64_t> ids;
  for (const auto& [id, one] : departed.TakeClosed()) ids.push_back(id);
  return ids;
}

TEST(DepartedWorkersTest, ClosesWhenSettledAndThenExplained) {
  DepartedWorkers departed;
  departed.Add(1, Broken());
  EXPECT_EQ(StateOf(departed, 1), State::kOpen);
  departed.SettleAll();
  EXPECT_EQ(StateOf(departed, 1), State::kSettled);
  EXPECT_THAT(departed.TakeClosed(), IsEmpty());
  EXPECT_TRUE(departed.Explain(1, WorkerLoss::kCrashed, "exit code 3"));
  EXPECT_EQ(StateOf(departed, 1), State::kClosed);
  const auto closed = departed.TakeClosed();
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0].second.loss, WorkerLoss::kCrashed);
  EXPECT_EQ(closed[0].second.reason, "exit code 3");
  EXPECT_TRUE(departed.empty());
}

TEST(DepartedWorkersTest, ClosesWhenExplainedAndThenSettled) {
  DepartedWorkers departed;
  departed.Add(1, Broken());
  departed.Explain(1, WorkerLoss::kPreempted, "deleted");
  EXPECT_EQ(StateOf(departed, 1), State::kExplained);
  EXPECT_THAT(departed.TakeClosed(), IsEmpty());
  departed.Settle(1);
  EXPECT_THAT(Ids(departed), ElementsAre(1));
}

TEST(DepartedWorkersTest, TheFirstExplanationCounts) {
  DepartedWorkers departed;
  departed.Add(1, Broken());
  EXPECT_TRUE(departed.Explain(1, WorkerLoss::kPreempted, "evicted"));
  EXPECT_FALSE(departed.Explain(1, WorkerLoss::kCrashed, "exit code 1"));
  EXPECT_EQ(departed.all().at(1).reason, "evicted");
  EXPECT_FALSE(departed.Explain(2, WorkerLoss::kCrashed, "unknown"));
}

TEST(DepartedWorkersTest, WithoutAWordOfThePodItCountsAsPreempted) {
  DepartedWorkers departed;
  departed.Add(1, Broken(5));
  departed.Add(2, Broken(9));
  EXPECT_EQ(departed.next_deadline(), At(5));
  EXPECT_THAT(departed.Expire(At(4)), IsEmpty());
  EXPECT_THAT(departed.Expire(At(5)), ElementsAre(Pair(1, "stream broken")));
  EXPECT_EQ(departed.all().at(1).loss, WorkerLoss::kPreempted);
  EXPECT_EQ(departed.next_deadline(), At(9));
  // Once.
  EXPECT_THAT(departed.Expire(At(6)), IsEmpty());
  departed.Explain(2, WorkerLoss::kCrashed, "exit code 1");
  EXPECT_EQ(departed.next_deadline(), absl::InfiniteFuture());
}

TEST(DepartedWorkersTest, OthersAreNotConcerned) {
  DepartedWorkers departed;
  departed.Add(1, Broken());
  departed.Add(2, Broken());
  departed.Explain(1, WorkerLoss::kPreempted, "deleted");
  departed.SettleAll();
  EXPECT_THAT(Ids(departed), ElementsAre(1));
  EXPECT_TRUE(departed.Contains(2));
  departed.Forget(2);
  EXPECT_TRUE(departed.empty());
  departed.Settle(2);
  EXPECT_TRUE(departed.empty());
}

}  // namespace
}  // namespace elasticdl::master
