// A device that fails, has no memory left or hangs: it is told, and nothing
// ends the process.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <test_cudart.h>
#include <torch/torch.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/cord.h"
#include "batch_mover.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/elastic/control_word.h"
#include "elasticdl/elastic/watchdog.h"
#include "layers_model.h"
#include "mirror_worlds.h"
#include "support/temp_dir.h"

namespace elasticdl::worker::test {
namespace {

using testing::HasSubstr;

// Read by the first call: a test uses nearly all of it.
[[maybe_unused]] const bool small_device = [] {
  setenv("TEST_CUDART_MEMORY", "268435456", /*overwrite=*/1);
  return true;
}();

class DeviceFaultsTest : public testing::Test {
 protected:
  void TearDown() override {
    test_cudart_break(0);
    cudaGetLastError();
  }
  // All that a worker does with its device.
  static absl::Status Live(const std::string& dir) {
    Side::Options options;
    Side side;
    ELASTICDL_RETURN_IF_ERROR(side.SetUp(kGpu, options));
    side.Enter(std::make_shared<Mirror>());
    ELASTICDL_RETURN_IF_ERROR(side.trainer->WarmUp(MakeBatch(9, 4)));
    for (int64_t i = 0; i < 2; ++i) {
      ELASTICDL_ASSIGN_OR_RETURN(const Round round, side.Step(i));
      ELASTICDL_RETURN_IF_ERROR(round.world);
    }
    ELASTICDL_RETURN_IF_ERROR(side.replica->View().status());
    ELASTICDL_RETURN_IF_ERROR(side.replica->StateDigest().status());
    side.replica->LayoutDigest();
    side.replica->State();
    ELASTICDL_RETURN_IF_ERROR(side.replica->StoreState());
    ELASTICDL_RETURN_IF_ERROR(
        side.replica->Predict(MakeBatch(9, 4).features).status());
    ELASTICDL_RETURN_IF_ERROR(side.replica->Export(dir));
    ELASTICDL_RETURN_IF_ERROR(side.replica->StartAnew());
    return side.trainer->AcceptBuffers();
  }
};

TEST_F(DeviceFaultsTest, WhereverItFailsItIsToldAndTheProcessLives) {
  const elasticdl::test::TempDir dir;
  const long before = test_cudart_calls();
  ASSERT_TRUE(Live(dir.path()).ok());
  const long calls = test_cudart_calls() - before;
  ASSERT_GT(calls, 100);
  constexpr int kPlaces = 24;
  for (int i = 0; i < kPlaces; ++i) {
    test_cudart_break_after(calls * i / kPlaces, cudaErrorIllegalAddress);
    const absl::Status status = Live(dir.path());
    test_cudart_break(0);
    cudaGetLastError();
    // Memory of the device may have been cached: then there are fewer calls.
    if (i < kPlaces / 2) {
      EXPECT_FALSE(status.ok()) << "after " << calls * i / kPlaces;
    }
    if (status.ok()) continue;
    EXPECT_TRUE(IsDeviceFailure(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("an illegal memory access was encountered"));
  }
  EXPECT_TRUE(Live(dir.path()).ok());
}

TEST_F(DeviceFaultsTest, AStepSaysWhatFailed) {
  for (const bool on_device : {false, true}) {
    std::shared_ptr<Mirror> world = std::make_shared<Mirror>();
    if (on_device) world = std::make_shared<DeviceMirror>();
    Side gpu(kGpu, world);
    gpu.Steps(0, 1);
    test_cudart_break(cudaErrorIllegalAddress);
    const auto round = gpu.Step(1);
    EXPECT_TRUE(IsDeviceFailure(round.status())) << round.status();
    EXPECT_THAT(std::string(round.status().message()),
                HasSubstr("the device failed: a step"));
    test_cudart_break(0);
  }
}

TEST_F(DeviceFaultsTest, AFailureSurvivesAnnotations) {
  const absl::Status status = Annotate(
      OnDevice("x", [] { return absl::InternalError("CUDA error: bad"); }),
      "training on records 1 to 2");
  EXPECT_TRUE(IsDeviceFailure(status));
  EXPECT_FALSE(IsOutOfDeviceMemory(status));
  EXPECT_FALSE(IsDeviceFailure(
      OnDevice("x", [] { return absl::InternalError("the model throws"); })));
}

// The member is not at fault: the master may do without NCCL.
TEST_F(DeviceFaultsTest, AFailureOfNcclStaysOne) {
  for (const char* error :
       {"NCCL: add up: unhandled cuda error; Cuda failure 'out of memory'",
        "NCCL: add up: unhandled cuda error; CUDA error"}) {
    const absl::Status status = OnDevice("summing gradients", [error] {
      absl::Status failure = absl::AbortedError(error);
      // As the communicator does it.
      failure.SetPayload("elasticdl.collective.NcclFailure", absl::Cord());
      return failure;
    });
    EXPECT_TRUE(collective::IsNcclFailure(status)) << status;
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_FALSE(IsOutOfDeviceMemory(status)) << status;
    EXPECT_FALSE(IsDeviceFailure(status)) << status;
  }
}

TEST_F(DeviceFaultsTest, WordsForWhatUsersCanChange) {
  const auto words = [](const char* error) {
    const absl::Status status = OnDevice("a step", [error]() -> absl::Status {
      throw std::runtime_error(error);
    });
    return std::string(status.message());
  };
  EXPECT_THAT(words("CUDA error: device-side assert triggered\nCompile with"),
              HasSubstr("a label or an index out of range"));
  EXPECT_THAT(words("CUDA error: no kernel image is available for execution "
                    "on the device"),
              HasSubstr("compute capability"));
  EXPECT_THAT(words("CUDA error: CUDA driver version is insufficient for CUDA "
                    "runtime version"),
              HasSubstr("driver is older"));
  // Advice for people who debug libtorch is left out.
  EXPECT_EQ(words("CUDA error: unspecified launch failure\nCUDA kernel errors"),
            "the device failed: a step: CUDA error: unspecified launch "
            "failure");
}

TEST_F(DeviceFaultsTest, OutOfMemorySaysHowMuchAndWhatToDo) {
  Side gpu(kGpu, std::make_shared<Mirror>());
  gpu.Steps(0, 1);
  size_t left = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&left, &total), cudaSuccess);
  void* taken = nullptr;
  ASSERT_EQ(cudaMalloc(&taken, left - (size_t{1} << 20)), cudaSuccess);
  const auto free = absl::MakeCleanup([taken] { cudaFree(taken); });
  const Batch batch = MakeBatch(0, 4000);
  const auto round =
      gpu.trainer->Run({{&batch, 4000}}, elastic::MemberWord(), 0.1);
  ASSERT_TRUE(IsOutOfDeviceMemory(round.status())) << round.status();
  EXPECT_TRUE(absl::IsResourceExhausted(round.status()));
  const std::string message(round.status().message());
  EXPECT_THAT(message, HasSubstr("a smaller --minibatch_size"));
  EXPECT_THAT(message, HasSubstr("Tried to allocate"));
  EXPECT_THAT(message, HasSubstr("total capacity"));
}

// Then the job fails instead of replacing its workers for ever: see
// JobRunner::Fail.
TEST_F(DeviceFaultsTest, WithoutMemoryForTheFirstUpdateThereIsNoStep) {
  Side gpu;
  gpu.model.optimizer = "Adam(lr=0.1)";
  ASSERT_TRUE(gpu.SetUp(kGpu, Side::Options()).ok());
  gpu.Enter(std::make_shared<Mirror>());
  void* taken = nullptr;
  std::vector<torch::Tensor> cached;
  const auto free = absl::MakeCleanup([&taken] { cudaFree(taken); });
  gpu.trainer->before_update = [&](const elastic::RoundSummary&, double) {
    size_t left = 0;
    size_t total = 0;
    EXPECT_EQ(cudaMemGetInfo(&left, &total), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&taken, left - (size_t{1} << 20)), cudaSuccess);
    // What the allocator still has of that size.
    const torch::Tensor values = gpu.replica->parameters().value_tensor();
    const absl::Status none = OnDevice("taking all", [&]() -> absl::Status {
      while (true) cached.push_back(torch::empty_like(values));
    });
    EXPECT_TRUE(IsOutOfDeviceMemory(none)) << none;
  };
  const auto round = gpu.Step(0);
  EXPECT_TRUE(IsOutOfDeviceMemory(round.status())) << round.status();
  EXPECT_EQ(gpu.replica->step(), 0);
}

// A kernel that does not end until the watchdog has spoken.
class Gate {
 public:
  void Open() {
    MutexLock lock(mu_);
    open_ = true;
    opened_.NotifyAll();
  }
  static void Pass(void* gate) {
    auto& self = *static_cast<Gate*>(gate);
    MutexLock lock(self.mu_);
    while (!self.open_) self.opened_.Wait(self.mu_);
  }

 private:
  Mutex mu_;
  CondVar opened_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

// The kernel is the last one that this member computes for a step: its rank is
// asked for when that is enqueued.
template <typename Base>
class Hanging : public Base {
 public:
  explicit Hanging(Gate& gate) : gate_(&gate) {}
  int rank() const override {
    if (Gate* const gate = std::exchange(gate_, nullptr)) {
      EXPECT_EQ(cudaLaunchHostFunc(nullptr, &Gate::Pass, gate), cudaSuccess);
    }
    return Base::rank();
  }

 private:
  mutable Gate* gate_;
};

TEST_F(DeviceFaultsTest, TheWatchdogNoticesAKernelThatHangs) {
  for (const bool on_device : {false, true}) {
    for (const auto schedule : {kTestCudartEager, kTestCudartAllLazy}) {
      test_cudart_set_schedule(schedule);
      Gate gate;
      Mutex mu;
      std::vector<std::string> reports;
      elastic::Watchdog watchdog(absl::Milliseconds(100),
                                 [&](const std::string& where, absl::Duration) {
                                   {
                                     MutexLock lock(mu);
                                     reports.push_back(where);
                                   }
                                   gate.Open();
                                 });
      std::shared_ptr<Mirror> world = std::make_shared<Hanging<Mirror>>(gate);
      if (on_device) world = std::make_shared<Hanging<DeviceMirror>>(gate);
      Side::Options options;
      options.watchdog = &watchdog;
      options.plain = true;
      Side gpu(kGpu, world, options);
      const auto round = gpu.Step(0);
      ASSERT_TRUE(round.ok()) << round.status();
      EXPECT_TRUE(round->stepped);
      // It was this member's own work, not the exchange with others.
      const trace::StepTimes times = gpu.replica->step_clock().Take();
      EXPECT_GE(times.seconds[static_cast<size_t>(trace::Kind::kBackward)],
                0.1);
      MutexLock lock(mu);
      ASSERT_FALSE(reports.empty());
      EXPECT_EQ(reports[0], "computing on the device of step 1");
    }
  }
  test_cudart_set_schedule(kTestCudartEager);
}

// The sum is the same for all members, so none of them may take the step: also
// those on the CPU, whose own loss is fine.
TEST_F(DeviceFaultsTest, TheLossOfAMemberOnADeviceStopsThoseOnTheCpu) {
  for (const c10::Device device : {kCpu, kGpu}) {
    const auto world = std::make_shared<Mirror>();
    Side side(device, world);
    side.Steps(0, 1);
    const uint32_t before = *side.replica->StateDigest();
    // The second sum of a step begins with what BatchNorm has: four means, four
    // variances, a counter, and a flag for each of the three.
    constexpr int kStatistics = 4 + 4 + 1 + 3;
    world->Poison(
        4, kStatistics + static_cast<int>(elastic::LossSumIndex(/*rank=*/0)));
    const auto round = side.Step(1);
    ASSERT_TRUE(round.ok()) << round.status();
    EXPECT_THAT(std::string(round->world.message()),
                HasSubstr("the loss of another member is no number"));
    EXPECT_FALSE(round->stepped);
    EXPECT_EQ(*side.replica->StateDigest(), before);
  }
}

}  // namespace
}  // namespace elasticdl::worker::test
