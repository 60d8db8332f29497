#include "core/blame.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "elasticdl/common/status.h"
#include "elasticdl/common/thread.h"
#include "hierarchical/host_groups.h"

namespace elasticdl::collective {
namespace {

constexpr absl::Duration kLong = absl::Seconds(40);

TEST(BlameTest, IsAPayloadOfTheError) {
  EXPECT_EQ(BlamedRank(Blame(12, absl::AbortedError("gone"))), 12);
  EXPECT_EQ(BlamedRank(Blame(0, absl::DeadlineExceededError(""))), 0);
  EXPECT_EQ(BlamedRank(Blame(-1, Blame(3, absl::AbortedError("gone")))), -1);
}

TEST(BlameTest, NobodyUnlessThePayloadSaysSo) {
  EXPECT_EQ(BlamedRank(absl::OkStatus()), -1);
  for (const char* words :
       {"", "the master says so", "rank 1 lost rank 2: gone",
        "rank 3 waited for rank 12", "connect to rank 0: no route to host",
        "the model's feed: rank 5 of the matrix is wrong"}) {
    EXPECT_EQ(BlamedRank(absl::AbortedError(words)), -1) << words;
  }
}

TEST(BlameTest, StaysWithTheErrorOnItsWay) {
  const absl::Status late = Blame(4, absl::DeadlineExceededError("late"));
  EXPECT_EQ(BlamedRank(Annotate(Annotate(late, "step 7"), "worker 3")), 4);
  const absl::Status after = AsAborted(late);
  EXPECT_EQ(after.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(after.message(), "late");
  EXPECT_EQ(BlamedRank(after), 4);
}

// Rank 1 of those on a host need not be rank 1 of the world.
TEST(BlameTest, NobodyInAPartOfTheWorld) {
  EXPECT_EQ(BlamedRank(InAPart(Blame(1, absl::AbortedError("gone")))), -1);
}

// Two members in this process.
class BlameInAWorldTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    BackendOptions options;
    options.backend = GetParam();
    std::vector<std::unique_ptr<Connector>> connectors;
    std::vector<std::string> offers;
    for (int rank = 0; rank < 2; ++rank) {
      WorldSpec world;
      world.generation = 1;
      world.rank = rank;
      world.hosts.assign(2, "host");
      world.secret = "secret";
      auto connector = BeginConnect(world, options);
      if (absl::IsUnimplemented(connector.status())) {
        GTEST_SKIP() << connector.status().message();
      }
      ASSERT_TRUE(connector.ok()) << connector.status();
      offers.push_back((*connector)->offer());
      connectors.push_back(std::move(*connector));
    }
    std::vector<absl::Status> made(2);
    {
      std::vector<Thread> threads;
      for (size_t rank = 0; rank < 2; ++rank) {
        threads.emplace_back("member", [&, rank] {
          auto world = connectors[rank]->Connect(offers, kLong);
          made[rank] = world.status();
          if (world.ok()) worlds_[rank] = *std::move(world);
        });
      }
    }
    for (const absl::Status& status : made) ASSERT_TRUE(status.ok()) << status;
  }

  std::unique_ptr<Communicator> worlds_[2];
};

// What a caller of Abort says is not searched for ranks, here or elsewhere.
TEST_P(BlameInAWorldTest, WordsOfAnAbortBlameNobodyHere) {
  worlds_[0]->Abort("rank 1 lost rank 1: so says the log");
  const absl::Status status = worlds_[0]->Barrier(kLong);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(BlamedRank(status), -1) << status;
}

TEST_P(BlameInAWorldTest, WhoIsNotThereInTimeIsBlamedInAllLaterCalls) {
  const absl::Status late = worlds_[0]->Barrier(absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  const absl::Status later = worlds_[0]->Barrier(kLong);
  EXPECT_TRUE(absl::IsAborted(later)) << later;
  // Gloo does not tell for whom it waited.
  const int blamed = std::string(GetParam()) == "gloo" ? -1 : 1;
  EXPECT_EQ(BlamedRank(late), blamed) << late;
  EXPECT_EQ(BlamedRank(later), blamed) << later;
}

TEST_P(BlameInAWorldTest, WhoLeftIsBlamed) {
  worlds_[1].reset();
  const absl::Status status = worlds_[0]->Barrier(kLong);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(BlamedRank(status), 1) << status;
}

INSTANTIATE_TEST_SUITE_P(Backends, BlameInAWorldTest,
                         testing::Values("shm", "tcp", "gloo"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace elasticdl::collective
