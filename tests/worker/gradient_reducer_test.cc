// Sums in buckets: their order, and failures in the middle of a step.
#include "gradient_reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/mutex.h"

namespace elasticdl::worker {
namespace {

using collective::DataType;

// A world of two whose other member has the same gradients. Thread-safe.
class Mirror : public collective::Communicator {
 public:
  struct Call {
    const void* data;
    size_t count;
    DataType type;
  };

  int rank() const override { return 0; }
  int size() const override { return 2; }
  absl::Status AllReduce(void* data, size_t count, DataType type,
                         absl::Duration) override {
    {
      MutexLock lock(mu_);
      calls_.push_back({data, count, type});
      if (!aborted_.empty()) return absl::AbortedError(aborted_);
      if (fail_at_ == static_cast<int>(calls_.size())) {
        return absl::AbortedError("rank 1 is gone");
      }
    }
    const torch::ScalarType scalar =
        type == DataType::kFloat32    ? torch::kFloat32
        : type == DataType::kBFloat16 ? torch::kBFloat16
                                      : torch::kFloat16;
    torch::from_blob(data, {static_cast<int64_t>(count)}, scalar).mul_(2);
    return absl::OkStatus();
  }
  absl::Status Broadcast(void*, size_t, int, absl::Duration) override {
    return absl::UnimplementedError("");
  }
  absl::Status AllGather(const void*, void*, size_t, absl::Duration) override {
    return absl::UnimplementedError("");
  }
  absl::Status ReduceScatter(void*, size_t, DataType, absl::Duration) override {
    return absl::UnimplementedError("");
  }
  absl::Status Barrier(absl::Duration) override { return absl::OkStatus(); }
  void Abort(const std::string& reason) override {
    MutexLock lock(mu_);
    aborted_ = reason;
  }

  void FailAt(int call) {
    MutexLock lock(mu_);
    fail_at_ = call;
  }
  std::vector<Call> calls() const {
    MutexLock lock(mu_);
    return calls_;
  }
  std::string aborted() const {
    MutexLock lock(mu_);
    return aborted_;
  }

 private:
  mutable Mutex mu_;
  std::vector<Call> calls_ ABSL_GUARDED_BY(mu_);
  int fail_at_ ABSL_GUARDED_BY(mu_) = 0;
  std::string aborted_ ABSL_GUARDED_BY(mu_);
};

constexpr size_t kHead = 3;

class GradientReducerTest : public testing::Test {
 protected:
  ~GradientReducerTest() override { EXPECT_TRUE(InitFailpoints("").ok()); }

  // Parameters of these sizes; the loss is the sum of all, so that every
  // gradient is 1.
  void Make(const std::vector<int64_t>& sizes,
            GradientCompression compression = GradientCompression::kNone) {
    NamedTensors tensors;
    for (const int64_t size : sizes) {
      tensors.emplace_back("p" + std::to_string(tensors.size()),
                           torch::zeros({size}).set_requires_grad(true));
    }
    auto flat = FlatParameters::Adopt(tensors, kHead);
    ASSERT_TRUE(flat.ok()) << flat.status();
    flat_ = std::make_unique<FlatParameters>(*std::move(flat));
    reducer_ = std::make_unique<GradientReducer>(*flat_, compression);
  }
  void Backward() {
    flat_->ZeroGradients();
    torch::Tensor loss = torch::zeros({});
    for (const torch::Tensor& tensor : flat_->tensors()) loss += tensor.sum();
    loss.backward();
  }
  // A step whose sums may fail while backward is running, or after it.
  absl::Status BackwardAndFinish() {
    try {
      Backward();
    } catch (const std::exception&) {
      return reducer_->Cancel();
    }
    return reducer_->Finish(mirror_, kHead);
  }
  void SetHead() {
    for (size_t i = 0; i < kHead; ++i) *(flat_->gradients() - 1 - i) = 5;
  }
  // Every gradient of the flat array is this.
  void ExpectGradients(float expected) {
    for (size_t i = 0; i < flat_->size(); ++i) {
      ASSERT_EQ(flat_->gradients()[i], expected) << i;
    }
  }
  // More than the first bucket, and than the one after it.
  static std::vector<int64_t> Large() { return {1000, 7'000'000, 300'000}; }

  std::unique_ptr<FlatParameters> flat_;
  std::shared_ptr<Mirror> mirror_ = std::make_shared<Mirror>();
  std::unique_ptr<GradientReducer> reducer_;
};

TEST_F(GradientReducerTest, ASmallModelIsOneBucketWithTheHead) {
  Make({10, 20});
  EXPECT_EQ(reducer_->num_buckets(), 1u);
  reducer_->BeginOverlap(mirror_);
  Backward();
  SetHead();
  ASSERT_TRUE(reducer_->Finish(mirror_, kHead).ok());
  ExpectGradients(2);
  EXPECT_EQ(flat_->gradients()[-1], 10);
  ASSERT_EQ(mirror_->calls().size(), 1u);
  EXPECT_EQ(mirror_->calls()[0].count, 33u);
}

TEST_F(GradientReducerTest, BucketsGoFromTheEndToTheBeginning) {
  Make(Large());
  ASSERT_EQ(reducer_->num_buckets(), 3u);
  for (int step = 0; step < 2; ++step) {
    reducer_->BeginOverlap(mirror_);
    Backward();
    SetHead();
    ASSERT_TRUE(reducer_->Finish(mirror_, kHead).ok());
    ExpectGradients(2);
  }
  const auto calls = mirror_->calls();
  ASSERT_EQ(calls.size(), 6u);
  EXPECT_EQ(calls[0].count, 300'000u);
  EXPECT_EQ(calls[1].count, 7'000'000u);
  EXPECT_EQ(calls[2].count, 1000 + kHead);
  EXPECT_EQ(calls[0].data, calls[3].data);
}

TEST_F(GradientReducerTest, AMemberWithoutDataSendsItsZeros) {
  Make(Large());
  flat_->ZeroGradients();
  SetHead();
  ASSERT_TRUE(reducer_->Finish(mirror_, kHead).ok());
  ExpectGradients(0);
  EXPECT_EQ(mirror_->calls().size(), 3u);
}

TEST_F(GradientReducerTest, AFailureInABucketIsTheStepsAndTheNextIsFree) {
  Make(Large());
  mirror_->FailAt(1);
  reducer_->BeginOverlap(mirror_);
  EXPECT_EQ(BackwardAndFinish(), absl::AbortedError("rank 1 is gone"));
  auto next = std::make_shared<Mirror>();
  reducer_->BeginOverlap(next);
  Backward();
  ASSERT_TRUE(reducer_->Finish(next, kHead).ok());
  ExpectGradients(2);
}

TEST_F(GradientReducerTest, AFailpointNamesItsBucket) {
  Make(Large());
  ASSERT_TRUE(InitFailpoints("worker.reduce.1=error").ok());
  reducer_->BeginOverlap(mirror_);
  EXPECT_TRUE(absl::IsUnavailable(BackwardAndFinish()));
  for (const Mirror::Call& call : mirror_->calls()) {
    EXPECT_NE(call.count, 7'000'000u);
  }
}

// Nobody computes the rest of gradients that no world will use.
TEST_F(GradientReducerTest, ABrokenWorldEndsBackward) {
  Make(Large());
  mirror_->FailAt(1);
  reducer_->BeginOverlap(mirror_);
  flat_->ZeroGradients();
  // Sends the first bucket, which fails on the reducer's thread.
  flat_->tensors()[2].sum().backward();
  bool ended = false;
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!ended && absl::Now() < deadline) {
    try {
      // Its bucket is not sent before Finish.
      flat_->tensors()[0].sum().backward();
    } catch (const std::exception& error) {
      ended = true;
    }
  }
  EXPECT_TRUE(ended);
  EXPECT_EQ(reducer_->Cancel(), absl::AbortedError("rank 1 is gone"));
  const auto next = std::make_shared<Mirror>();
  reducer_->BeginOverlap(next);
  Backward();
  ASSERT_TRUE(reducer_->Finish(next, kHead).ok());
  ExpectGradients(2);
}

// The model throws in the middle of backward: what was sent comes to its end
// before the gradients are used again, and the others do not wait.
TEST_F(GradientReducerTest, CancelBreaksTheWorldOff) {
  Make(Large());
  reducer_->BeginOverlap(mirror_);
  // Backward of the last parameter alone.
  flat_->tensors()[2].sum().backward();
  // Its own failure, not the world's.
  EXPECT_TRUE(reducer_->Cancel().ok());
  EXPECT_NE(mirror_->aborted(), "");
  EXPECT_EQ(mirror_->calls().size(), 1u);
  const auto next = std::make_shared<Mirror>();
  reducer_->BeginOverlap(next);
  Backward();
  ASSERT_TRUE(reducer_->Finish(next, kHead).ok());
  ExpectGradients(2);
}

TEST(DeviceSumTimeoutTest, FollowsTheLimitOfAStep) {
  EXPECT_EQ(DeviceSumTimeout(absl::Minutes(5)), absl::Seconds(630));
  // Others are late by an hour where that is allowed.
  EXPECT_GT(DeviceSumTimeout(absl::Hours(1)), absl::Hours(1));
  EXPECT_EQ(DeviceSumTimeout(absl::ZeroDuration()), kReduceTimeout);
}

TEST_F(GradientReducerTest, CancelWithoutAStepDoesNothing) {
  Make(Large());
  EXPECT_TRUE(reducer_->Cancel().ok());
  EXPECT_EQ(mirror_->aborted(), "");
}

TEST_F(GradientReducerTest, TheHeadIsNotCompressed) {
  for (const auto& [compression, type] :
       {std::pair{GradientCompression::kBFloat16, DataType::kBFloat16},
        std::pair{GradientCompression::kFloat16, DataType::kFloat16}}) {
    mirror_ = std::make_shared<Mirror>();
    reducer_.reset();
    Make({10, 20}, compression);
    Backward();
    SetHead();
    ASSERT_TRUE(reducer_->Finish(mirror_, kHead).ok());
    ExpectGradients(2);
    EXPECT_EQ(flat_->gradients()[-1], 10);
    const auto calls = mirror_->calls();
    ASSERT_EQ(calls.size(), 2u);
    EXPECT_EQ(calls[0].type, type);
    // At the end, as on a device.
    EXPECT_EQ(calls[1].type, DataType::kFloat32);
    EXPECT_EQ(calls[1].count, kHead);
  }
}

TEST_F(GradientReducerTest, GradientsThatFailSendNoHead) {
  Make({10}, GradientCompression::kFloat16);
  mirror_->FailAt(1);
  Backward();
  EXPECT_TRUE(absl::IsAborted(reducer_->Finish(mirror_, kHead)));
  EXPECT_EQ(mirror_->calls().size(), 1u);
  ExpectGradients(1);
}

}  // namespace
}  // namespace elasticdl::worker
