// Training on the test device, under every schedule of its streams: the same as
// on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <test_cudart.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batch_mover.h"
#include "device_optimizer.h"
#include "gradient_clip.h"
#include "layers_model.h"
#include "mirror_worlds.h"

namespace elasticdl::worker::test {
namespace {

using testing::HasSubstr;

class DeviceTest : public testing::TestWithParam<TestCudartSchedule> {
 protected:
  void SetUp() override { test_cudart_set_schedule(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Schedules, DeviceTest,
                         testing::Values(kTestCudartEager, kTestCudartNullLazy,
                                         kTestCudartSideLazy,
                                         kTestCudartAllLazy));

TEST_P(DeviceTest, SumsInHostMemoryAreTheCpus) {
  Side cpu(kCpu, std::make_shared<Mirror>());
  Side gpu(kGpu, std::make_shared<Mirror>());
  cpu.Steps(0, 5);
  gpu.Steps(0, 5);
  ExpectClose(cpu, gpu, 1e-5);
  EXPECT_NEAR(cpu.last.summary.mean_loss, gpu.last.summary.mean_loss, 1e-4);
  EXPECT_EQ(cpu.last.summary.records, gpu.last.summary.records);
}

TEST_P(DeviceTest, SumsOnTheDeviceAreTheCpus) {
  Side cpu(kCpu, std::make_shared<Mirror>());
  Side gpu(kGpu, std::make_shared<DeviceMirror>());
  cpu.Steps(0, 5);
  gpu.Steps(0, 5);
  ExpectClose(cpu, gpu, 1e-5);
  EXPECT_EQ(cpu.last.summary.records, gpu.last.summary.records);
}

TEST_P(DeviceTest, CompressedSumsAreTheCpus) {
  Side::Options options;
  options.compression = GradientCompression::kBFloat16;
  Side cpu(kCpu, std::make_shared<Mirror>(), options);
  Side host(kGpu, std::make_shared<Mirror>(), options);
  Side device(kGpu, std::make_shared<DeviceMirror>(), options);
  cpu.Steps(0, 3);
  host.Steps(0, 3);
  device.Steps(0, 3);
  // Values on the edge of two may be rounded to either.
  ExpectClose(cpu, host, 1e-2);
  ExpectClose(host, device, 1e-5);
}

TEST_P(DeviceTest, AFailedStepIsInNoModelAndLeavesNoTrace) {
  for (const bool on_device : {false, true}) {
    for (const int call : {0, 1}) {
      const auto make = [on_device]() -> std::shared_ptr<Mirror> {
        if (on_device) return std::make_shared<DeviceMirror>();
        return std::make_shared<Mirror>();
      };
      Side cpu(kCpu, std::make_shared<Mirror>());
      const auto world = make();
      Side gpu(kGpu, world);
      cpu.Steps(0, 2);
      gpu.Steps(0, 2);
      const uint32_t before = *gpu.replica->StateDigest();
      world->FailAfter(call);
      const auto round = gpu.Step(2);
      ASSERT_TRUE(round.ok()) << round.status();
      EXPECT_TRUE(absl::IsAborted(round->world)) << round->world;
      EXPECT_EQ(*gpu.replica->StateDigest(), before);
      // Steps of the next world.
      cpu.Enter(std::make_shared<Mirror>());
      gpu.Enter(make());
      cpu.Steps(2, 4);
      gpu.Steps(2, 4);
      ExpectClose(cpu, gpu, 1e-5);
    }
  }
}

// A member that aborts NCCL leaves nonsense in the sum at hand, from any place
// on, and in those after it. The control word comes after them.
TEST_P(DeviceTest, WhatAnAbortLeavesIsInNoModel) {
  for (const auto compression :
       {GradientCompression::kNone, GradientCompression::kBFloat16}) {
    // Two buckets and the head.
    for (const int call : {0, 1, 2}) {
      SCOPED_TRACE(call);
      Side::Options options;
      options.compression = compression;
      const auto world = std::make_shared<DeviceMirror>();
      Side gpu(kGpu, world, options);
      gpu.Steps(0, 1);
      const uint32_t before = *gpu.replica->StateDigest();
      world->AbortAfter(call);
      const auto round = gpu.Step(1);
      ASSERT_TRUE(round.ok()) << round.status();
      EXPECT_TRUE(absl::IsAborted(round->world)) << round->world;
      EXPECT_EQ(*gpu.replica->StateDigest(), before);
    }
  }
}

// NCCL may stall though all members are well.
TEST_P(DeviceTest, SumsOnTheDeviceHaveADeadlineOfTheirOwn) {
  Side::Options options;
  options.device_timeout = absl::Seconds(7);
  const auto world = std::make_shared<DeviceMirror>();
  Side gpu(kGpu, world, options);
  gpu.Steps(0, 1);
  EXPECT_EQ(world->longest, absl::Seconds(7));
}

TEST_P(DeviceTest, ALossThatIsNoNumberIsTold) {
  Side gpu(kGpu, std::make_shared<DeviceMirror>());
  gpu.Steps(0, 1);
  const uint32_t before = *gpu.replica->StateDigest();
  gpu.model.network->factor = std::numeric_limits<double>::quiet_NaN();
  const auto round = gpu.Step(1);
  ASSERT_FALSE(round.ok());
  EXPECT_THAT(std::string(round.status().message()),
              HasSubstr("nan at step 2; a smaller learning rate"));
  EXPECT_EQ(*gpu.replica->StateDigest(), before);
}

TEST_P(DeviceTest, ACheckpointMovesToTheDeviceAndBack) {
  const auto load = [](const checkpoint::OwnedSnapshot& saved) {
    checkpoint::Loaded loaded;
    loaded.version = saved.snapshot.version;
    loaded.variables = saved.snapshot.variables;
    loaded.slots = saved.snapshot.slots;
    loaded.optimizer = saved.snapshot.optimizer;
    const auto by_name = [](const auto& a, const auto& b) {
      return a.name < b.name;
    };
    std::sort(loaded.variables.begin(), loaded.variables.end(), by_name);
    std::sort(loaded.slots.begin(), loaded.slots.end(), by_name);
    return loaded;
  };
  Side cpu(kCpu, std::make_shared<Mirror>());
  Side gpu(kGpu, std::make_shared<Mirror>());
  cpu.Steps(0, 2);
  const auto first = checkpoint::OwnedSnapshot::Copy(*cpu.replica->View());
  checkpoint::Loaded there = load(first);
  ASSERT_TRUE(gpu.replica->Restore(there).ok());
  ASSERT_TRUE(gpu.trainer->AcceptBuffers().ok());
  EXPECT_EQ(*gpu.replica->StateDigest(), *cpu.replica->StateDigest());
  EXPECT_EQ(gpu.replica->LayoutDigest(), cpu.replica->LayoutDigest());
  gpu.Steps(2, 4);
  const auto second = checkpoint::OwnedSnapshot::Copy(*gpu.replica->View());
  checkpoint::Loaded back = load(second);
  const uint32_t digest = *gpu.replica->StateDigest();
  ASSERT_TRUE(cpu.replica->Restore(back).ok());
  EXPECT_EQ(*cpu.replica->StateDigest(), digest);
  EXPECT_EQ(cpu.replica->step(), 4);
  // And what it predicts.
  const Batch batch = MakeBatch(9, 4);
  const auto a = cpu.replica->Predict(batch.features);
  const auto b = gpu.replica->Predict(batch.features);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_TRUE(b->tensor().is_cpu());
  EXPECT_TRUE(torch::allclose(a->tensor(), b->tensor()));
  ASSERT_TRUE(gpu.replica->StartAnew().ok());
  EXPECT_EQ(gpu.replica->step(), 0);
}

TEST_P(DeviceTest, AModelThatMixesDevicesIsTold) {
  Side gpu(kGpu, std::make_shared<Mirror>());
  gpu.model.network->mix_devices = true;
  const auto round = gpu.Step(0);
  EXPECT_THAT(std::string(round.status().message()),
              HasSubstr("make tensors with .device(x.device())"));
}

TEST_P(DeviceTest, BatchesArriveBesideTheComputation) {
  BatchMover mover(kGpu);
  torch::Tensor sum = torch::zeros({1}, kGpu);
  std::vector<BatchMover::Moving> ahead;
  for (int i = 0; i < 8; ++i) {
    Batch batch;
    batch.features = Features(torch::full({4096}, i));
    batch.labels = torch::full({16}, 1.0F);
    ahead.push_back(mover.Start(Pinned(batch, kGpu)));
    if (i % 2 == 0) continue;
    for (const BatchMover::Moving& moving : ahead) {
      mover.Arrive(moving);
      sum.add_(moving.batch.features.tensor().max());
      sum.add_(moving.batch.labels.sum());
    }
    Synchronize(CurrentStream(kGpu));
    ahead.clear();
  }
  EXPECT_EQ(sum.item<float>(), 0 + 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 * 16);
}

// ---- optimizers ----

class OptimizerTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(
    All, OptimizerTest,
    testing::Values("SGD(lr=0.1)", "SGD(lr=0.1,momentum=0.9,weight_decay=0.01)",
                    "SGD(lr=0.1,momentum=0.9,nesterov=1)",
                    "SGD(lr=0.1,momentum=0.9,dampening=0.5)", "Adam(lr=0.01)",
                    "Adam(lr=0.01,amsgrad=1,weight_decay=0.1)",
                    "AdamW(lr=0.01,weight_decay=0.1)",
                    "Adagrad(lr=0.1,lr_decay=0.1)", "RMSprop(lr=0.01)",
                    "RMSprop(lr=0.01,centered=1,momentum=0.9)",
                    "RMSprop(lr=0.01,momentum=0.9,weight_decay=0.1)",
                    "Adadelta(lr=1)", "Adamax(lr=0.01)", "Nadam(lr=0.01)",
                    "Ftrl(lr=0.1)",
                    "Ftrl(lr=0.1,l1_regularization_strength=0.1,"
                    "l2_regularization_strength=0.1)",
                    "Ftrl(lr=0.1,learning_rate_power=-0.7)"));

TEST_P(OptimizerTest, TensorsGiveWhatTheKernelsGive) {
  constexpr int64_t kSize = 1001;
  const auto spec = OptimizerSpec::Parse(GetParam());
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto optimizer = optim::Optimizer::Create(*spec);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  torch::manual_seed(1);
  const torch::Tensor values = torch::randn({kSize});
  const torch::Tensor moved = values.to(kGpu);
  std::vector<torch::Tensor> slots;
  std::vector<torch::Tensor> moved_slots;
  std::vector<float*> pointers;
  for (size_t i = 0; i < (*optimizer)->slot_names().size(); ++i) {
    slots.push_back(torch::full({kSize}, (*optimizer)->initial_slot_value(i)));
    moved_slots.push_back(slots.back().to(kGpu));
    pointers.push_back(slots.back().data_ptr<float>());
  }
  for (int64_t step = 1; step <= 8; ++step) {
    torch::Tensor gradients = torch::randn({kSize});
    gradients[0] = 0;
    ApplyWithTensors(**optimizer, moved, gradients.to(kGpu), moved_slots, 0.05,
                     step);
    (*optimizer)
        ->Apply(values.data_ptr<float>(), gradients.data_ptr<float>(),
                pointers.data(), static_cast<size_t>(kSize), 0.05, step);
  }
  const torch::Tensor back = moved.cpu();
  EXPECT_TRUE(torch::allclose(values, back, 1e-4, 1e-5))
      << (values - back).abs().max().item<double>();
  for (size_t i = 0; i < slots.size(); ++i) {
    EXPECT_TRUE(torch::allclose(slots[i], moved_slots[i].cpu(), 1e-4, 1e-5))
        << (*optimizer)->slot_names()[i];
  }
}

// global_clipnorm.
TEST_P(DeviceTest, GradientsAreClippedAsOnTheCpu) {
  constexpr int64_t kSize = 1001;
  torch::manual_seed(1);
  const torch::Tensor gradients = torch::randn({kSize});
  const double norm = gradients.norm().item<double>();
  for (const double most : {norm * 0.01, norm * 0.99, norm * 1.01}) {
    torch::Tensor there = gradients.to(kGpu);
    ClipTensorByNorm(most, there);
    torch::Tensor here = gradients.clone();
    const absl::Span<float> floats(here.data_ptr<float>(), kSize);
    ClipByGlobalNorm(most, {floats});
    EXPECT_TRUE(torch::allclose(there.cpu(), here, 1e-6, 1e-7)) << most;
    EXPECT_EQ(torch::equal(there.cpu(), gradients), most > norm);
  }
  // What is no number stays none: whoever gets it refuses it.
  torch::Tensor bad = gradients.clone();
  bad[3] = std::numeric_limits<float>::quiet_NaN();
  torch::Tensor there = bad.to(kGpu);
  ClipTensorByNorm(1, there);
  EXPECT_TRUE(there.cpu()[3].isnan().item<bool>());
}

}  // namespace
}  // namespace elasticdl::worker::test
