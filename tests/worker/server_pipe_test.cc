// Pulls and pushes of one worker, against real servers.
#include "server_pipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/thread.h"
#include "served.h"

namespace elasticdl::worker::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class ServerPipeTest : public testing::Test {
 protected:
  // Each request goes to both.
  static constexpr int kServers = 2;

  ~ServerPipeTest() override { ExpectOk(InitFailpoints("")); }
  void Make(bool overlap) {
    worker_ = std::make_unique<PipeWorker>(servers_, model_, overlap);
    worker_->Connect();
    other_ = std::make_unique<OtherWorker>(servers_, worker_->Definition());
  }
  // Requests since the last call.
  int64_t NewPulls() {
    const int64_t before = std::exchange(pulls_, servers_.Pulls());
    return (pulls_ - before) / kServers;
  }

  ServedModel model_;
  PsServers servers_{kServers};
  std::unique_ptr<PipeWorker> worker_;
  std::unique_ptr<OtherWorker> other_;
  int64_t pulls_ = 0;
  const ServedBatch a_{0, {1, 2, 3, 4}};
  const ServedBatch b_{4, {5, 6, 7, 8}};
  const ServedBatch c_{8, {9, 10, 11, 12}};
  const ServedBatch d_{12, {13, 13, 13, 14}};
  const ServedBatch e_{16, {1, 1, 2, 2}};
};

TEST_F(ServerPipeTest, WithoutOverlapEachMinibatchSeesThePushBefore) {
  Make(/*overlap=*/false);
  for (const ServedBatch* batch : {&a_, &b_, &c_}) {
    worker_->Pull(*batch);
    worker_->PullAhead(d_);
    worker_->Compute(*batch);
    worker_->Push(*batch);
  }
  EXPECT_THAT(model_.seen, ElementsAre(0, 1, 2));
  EXPECT_EQ(other_->Weight(), 3);
  EXPECT_THAT(other_->Row(10), ElementsAre(0.25, 0.25));
}

TEST_F(ServerPipeTest, WithOverlapAMinibatchIsPulledBeforeThePushBeforeIt) {
  Make(/*overlap=*/true);
  worker_->Pull(a_);
  worker_->PullAhead(b_);
  worker_->Compute(a_);
  worker_->Push(a_);
  worker_->Pull(b_);
  worker_->Compute(b_);
  ExpectOk(worker_->pipe.FinishPush());
  worker_->Push(b_);
  // Nothing was begun for it: it comes after all that was.
  worker_->Pull(c_);
  worker_->Compute(c_);
  ExpectOk(worker_->pipe.Finish());
  EXPECT_THAT(model_.seen, ElementsAre(0, 0, 2));
  EXPECT_EQ(other_->Weight(), 2);
}

TEST_F(ServerPipeTest, RowsComeWithTheRequestForDenseValuesOnceTheyAreKnown) {
  Make(/*overlap=*/false);
  NewPulls();
  worker_->Train(a_);
  EXPECT_EQ(NewPulls(), 2);
  worker_->Train(b_);
  EXPECT_EQ(NewPulls(), 1);
  worker_->Train(d_);
  EXPECT_EQ(NewPulls(), 1);
  EXPECT_THAT(other_->Row(13), ElementsAre(0.75, 0.75));
}

TEST_F(ServerPipeTest, RowsThatWereNotPredictedArePulledOnRequest) {
  Make(/*overlap=*/false);
  worker_->Train(a_);
  worker_->Train(b_);
  NewPulls();
  model_.shift = 100;
  worker_->Train(c_);
  EXPECT_EQ(NewPulls(), 2);
  // The gradients are of the rows that were used.
  EXPECT_THAT(other_->Row(109), ElementsAre(0.25, 0.25));
  EXPECT_THAT(other_->Row(9), ElementsAre(0, 0));
  // The feature is no longer trusted, until it is right again.
  NewPulls();
  model_.shift = 0;
  worker_->Train(d_);
  EXPECT_EQ(NewPulls(), 2);
  worker_->Train(e_);
  EXPECT_EQ(NewPulls(), 1);
  EXPECT_THAT(other_->Row(1), ElementsAre(0.75, 0.75));
}

// What was pulled ahead for a minibatch that does not come has brought the
// newest dense values, which no server sends again.
TEST_F(ServerPipeTest, AnotherMinibatchThanTheOnePulledAheadFor) {
  Make(/*overlap=*/true);
  worker_->Train(a_);
  other_->Add(10, 9);
  worker_->PullAhead(b_);
  worker_->Pull(c_);
  worker_->Compute(c_);
  EXPECT_THAT(model_.seen, ElementsAre(0, 11));
  worker_->Push(c_);
  ExpectOk(worker_->pipe.Finish());
  EXPECT_THAT(other_->Row(9), ElementsAre(10.25, 10.25));
  EXPECT_THAT(other_->Row(5), ElementsAre(0, 0));
}

TEST_F(ServerPipeTest, RowsThatWerePulledAheadAloneDoNotStandForDenseValues) {
  Make(/*overlap=*/true);
  worker_->Train(a_);
  worker_->PullAhead(b_, /*dense=*/false);
  other_->Add(10);
  worker_->Pull(b_, /*dense=*/true);
  worker_->Compute(b_);
  worker_->Pull(c_, /*dense=*/false);
  worker_->Compute(c_);
  EXPECT_THAT(model_.seen, ElementsAre(0, 11, 11));
}

TEST_F(ServerPipeTest, RefreshHasWhatIsNewestAndDropsWhatWasPulledAhead) {
  Make(/*overlap=*/true);
  worker_->Pull(a_);
  worker_->PullAhead(b_);
  worker_->Compute(a_);
  worker_->Push(a_);
  ExpectOk(worker_->pipe.FinishPush());
  other_->Add(10);
  ExpectOk(worker_->pipe.Refresh());
  EXPECT_THAT(ValuesOf(*worker_->replica), Each(11));
  EXPECT_EQ(worker_->pipe.version(), 2);
  NewPulls();
  worker_->Pull(b_);
  EXPECT_EQ(NewPulls(), 1);
}

TEST_F(ServerPipeTest, AGradientIsAsOldAsTheOldestValueUsedForIt) {
  Make(/*overlap=*/false);
  worker_->Train(a_);
  worker_->Pull(b_);
  EXPECT_EQ(worker_->pipe.oldest_version(), 1);
  // Its rows come later than its dense values.
  model_.shift = 100;
  model_.before_forward = [this] { other_->Add(10); };
  worker_->Compute(b_);
  EXPECT_EQ(worker_->pipe.oldest_version(), 1);
  worker_->Push(b_);
  // Dense values of the last pull, newer rows.
  model_.shift = 0;
  worker_->Pull(c_, /*dense=*/false);
  worker_->Compute(c_);
  EXPECT_EQ(worker_->pipe.oldest_version(), 1);
  worker_->Push(c_);
  worker_->Pull(d_);
  EXPECT_EQ(worker_->pipe.oldest_version(), 4);
}

TEST_F(ServerPipeTest, GradientsOfRowsCountForTheNorm) {
  model_.optimizer = "SGD(lr=1,global_clipnorm=1)";
  Make(/*overlap=*/false);
  // Four gradients of 1: their norm is 2.
  worker_->Train(ServedBatch(0, {7}));
  EXPECT_THAT(other_->Dense(), Each(0.5));
  EXPECT_THAT(other_->Row(7), Each(0.5));
}

TEST_F(ServerPipeTest, BuffersTravelWithGradients) {
  model_.with_buffer = true;
  Make(/*overlap=*/true);
  worker_->Train(a_);
  EXPECT_THAT(other_->Dense(), ElementsAre(1, 1, 2.5));
}

// ---- faults ----

class ServerPipeFaultTest : public ServerPipeTest,
                            public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override { Make(GetParam()); }
};

TEST_P(ServerPipeFaultTest, APushForAnOldMapIsCutAgain) {
  worker_->Pull(a_);
  worker_->Compute(a_);
  servers_.RenewMap();
  worker_->Push(a_);
  ExpectOk(worker_->pipe.FinishPush());
  EXPECT_EQ(worker_->client.map_version(), 2);
  EXPECT_EQ(other_->Weight(), 1);
  EXPECT_THAT(other_->Row(1), ElementsAre(0.25, 0.25));
  EXPECT_EQ(other_->Version(), 1);
}

TEST_P(ServerPipeFaultTest, APushGoesToTheServersOfTheNewMap) {
  worker_->Train(a_);
  worker_->Pull(e_);
  worker_->Compute(e_);
  servers_.Start(2);
  servers_.MoveTo(3);
  worker_->Push(e_);
  ExpectOk(worker_->pipe.FinishPush());
  EXPECT_EQ(other_->Weight(), 2);
  EXPECT_THAT(other_->Row(1), ElementsAre(0.75, 0.75));
  EXPECT_THAT(other_->Row(3), ElementsAre(0.25, 0.25));
  worker_->Train(b_);
  EXPECT_EQ(model_.seen.back(), 2);
}

TEST_P(ServerPipeFaultTest, APushWaitsForAServerThatIsAway) {
  worker_->Pull(a_);
  worker_->Compute(a_);
  servers_.End(1);
  Thread starter("starter", [this] { servers_.Start(1); });
  worker_->Push(a_);
  ExpectOk(worker_->pipe.FinishPush());
  starter.Join();
  EXPECT_EQ(other_->Weight(), 1);
  for (const int64_t id : {1, 2, 3, 4}) {
    EXPECT_THAT(other_->Row(id), ElementsAre(0.25, 0.25));
  }
}

TEST_P(ServerPipeFaultTest, APullWaitsForAServerThatIsAway) {
  worker_->Train(a_);
  servers_.End(0);
  Thread starter("starter", [this] { servers_.Start(0); });
  worker_->PullAhead(e_);
  worker_->Pull(e_);
  starter.Join();
  worker_->Compute(e_);
  worker_->Push(e_);
  ExpectOk(worker_->pipe.FinishPush());
  EXPECT_THAT(model_.seen, ElementsAre(0, 1));
  EXPECT_THAT(other_->Row(1), ElementsAre(0.75, 0.75));
}

// Its records must never be reported, even if the servers have it.
TEST_P(ServerPipeFaultTest, APushThatFailedStaysFailed) {
  for (const char* where : {"worker.push", "worker.pushed"}) {
    Make(GetParam());
    ExpectOk(InitFailpoints(absl::StrCat(where, "=error@1x1")));
    worker_->Pull(a_);
    worker_->Compute(a_);
    worker_->Push(a_);
    EXPECT_TRUE(absl::IsUnavailable(worker_->pipe.FinishPush()));
    EXPECT_TRUE(absl::IsUnavailable(worker_->pipe.FinishPush()));
    EXPECT_TRUE(absl::IsUnavailable(worker_->pipe.Finish()));
  }
}

TEST_P(ServerPipeFaultTest, AnErrorOfAPullIsThatOfItsMinibatch) {
  worker_->Train(a_);
  ExpectOk(InitFailpoints("worker.pull=error@1x1"));
  worker_->PullAhead(b_);
  EXPECT_TRUE(absl::IsUnavailable(
      worker_->pipe.Pull(b_.minibatch, b_.batch.features, true)));
  worker_->Train(b_);
  EXPECT_EQ(other_->Weight(), 2);
}

TEST_P(ServerPipeFaultTest, RowsThatCannotBeHadAreTheServersFault) {
  worker_->Pull(a_);
  model_.before_forward = [this] { worker_->client.Cancel(); };
  worker_->replica->parameters().ZeroGradients();
  EXPECT_FALSE(worker_->replica->AddGradients(a_.batch, 1).ok());
  EXPECT_TRUE(absl::IsCancelled(worker_->pipe.rows_status()));
}

INSTANTIATE_TEST_SUITE_P(Overlap, ServerPipeFaultTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "On" : "Off";
                         });

}  // namespace
}  // namespace elasticdl::worker::test
