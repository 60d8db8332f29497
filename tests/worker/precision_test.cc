// Steps in smaller types, with a scaled loss, of several minibatches, and with
// another order of images in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <test_cudart.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "batch_mover.h"
#include "elasticdl/worker.h"
#include "layers_model.h"
#include "loss_scale.h"
#include "mirror_worlds.h"

namespace elasticdl::worker::test {
namespace {

using testing::HasSubstr;

Side::Options In(Precision precision) {
  Side::Options options;
  options.precision = precision;
  return options;
}

// A small network, for what is not about layers.
Side::Options Small(Precision precision) {
  Side::Options options = In(precision);
  options.plain = true;
  return options;
}

checkpoint::Loaded Load(const checkpoint::OwnedSnapshot& saved) {
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
}

[[maybe_unused]] const bool safe = [] {
  AvoidAmx();
  return true;
}();

// ---- the scale, alone ----

TEST(LossScaleTest, ShrinksAtOnceAndGrowsSlowly) {
  LossScale scale;
  EXPECT_EQ(scale.value(), 65536);
  EXPECT_TRUE(scale.Shrink());
  EXPECT_EQ(scale.value(), 32768);
  for (int i = 0; i < 1999; ++i) scale.OnStep();
  EXPECT_EQ(scale.value(), 32768);
  scale.OnStep();
  EXPECT_EQ(scale.value(), 65536);
  // An overflow begins the count anew.
  for (int i = 0; i < 1999; ++i) scale.OnStep();
  EXPECT_TRUE(scale.Shrink());
  scale.OnStep();
  EXPECT_EQ(scale.value(), 32768);
}

TEST(LossScaleTest, HasBounds) {
  LossScale scale;
  int times = 0;
  while (scale.Shrink()) ++times;
  EXPECT_EQ(times, 24);
  EXPECT_EQ(scale.value(), 1.0F / 256);
  for (int i = 0; i < 2000 * 40; ++i) scale.OnStep();
  EXPECT_EQ(scale.value(), 16777216);
}

TEST(LossScaleTest, BytesThatAreNoScaleAreNotBelieved) {
  const auto check = [](float value, float steps) {
    LossScale scale;
    const float numbers[] = {value, steps};
    memcpy(scale.bytes().data(), numbers, sizeof(numbers));
    scale.Check();
    return scale.value();
  };
  EXPECT_EQ(check(1024, 7), 1024);
  for (const float bad :
       {0.0F, -1.0F, 3.0F, 1e30F, std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(check(bad, 7), 65536) << bad;
  }
  EXPECT_EQ(check(1024, -1), 65536);
  EXPECT_EQ(check(1024, 1e9), 65536);
}

// ---- steps ----

class PrecisionTest : public testing::TestWithParam<TestCudartSchedule> {
 protected:
  void SetUp() override { test_cudart_set_schedule(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Schedules, PrecisionTest,
                         testing::Values(kTestCudartEager, kTestCudartNullLazy,
                                         kTestCudartSideLazy,
                                         kTestCudartAllLazy));

TEST_P(PrecisionTest, StepsAreNearThoseInFloats) {
  Side floats(kGpu, std::make_shared<Mirror>());
  floats.Steps(0, 6);
  for (const Precision precision :
       {Precision::kBFloat16, Precision::kFloat16}) {
    Side host(kGpu, std::make_shared<Mirror>(), In(precision));
    Side device(kGpu, std::make_shared<DeviceMirror>(), In(precision));
    host.Steps(0, 6);
    device.Steps(0, 6);
    ExpectClose(floats, host, 0.05);
    ExpectClose(host, device, 1e-5);
    EXPECT_NEAR(host.last.summary.mean_loss, floats.last.summary.mean_loss,
                0.1);
    // Not the same: it was computed in the smaller type.
    EXPECT_NE(host.last.summary.mean_loss, floats.last.summary.mean_loss);
  }
}

TEST_P(PrecisionTest, OutputsAreFloats) {
  for (const Precision precision :
       {Precision::kFloat32, Precision::kBFloat16, Precision::kFloat16}) {
    for (const c10::Device device : {kCpu, kGpu}) {
      if (device.is_cpu() && precision == Precision::kFloat16) continue;
      Side side(device, std::make_shared<Mirror>(), In(precision));
      const auto outputs = side.replica->Predict(MakeBatch(0, 4).features);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      EXPECT_EQ(outputs->tensor().scalar_type(), torch::kFloat32);
    }
  }
}

TEST_P(PrecisionTest, AnOverflowIsTriedAgainWithASmallerScale) {
  Side gpu(kGpu, std::make_shared<DeviceMirror>(), Small(Precision::kFloat16));
  // Gradients of the last layer are up to 10^3 / 8 times the scale.
  gpu.model.network->factor = 1e3;
  gpu.Steps(0, 1);
  EXPECT_EQ(gpu.replica->step(), 1);
  const float scale = gpu.replica->loss_scale().value();
  EXPECT_LT(scale, 65536);
  const torch::Tensor values = gpu.replica->parameters().value_tensor().cpu();
  EXPECT_TRUE(values.isfinite().all().item<bool>());
}

TEST_P(PrecisionTest, AScaleCountsOnlyWithItsStep) {
  for (const int call : {0, 1, 2}) {
    const auto world = std::make_shared<Mirror>();
    Side gpu(kGpu, world, Small(Precision::kFloat16));
    gpu.model.network->factor = 1e3;
    const uint32_t before = *gpu.replica->StateDigest();
    // The first attempts overflow (a sum each), then the world breaks.
    world->FailAfter(call);
    const auto round = gpu.Step(0);
    ASSERT_TRUE(round.ok()) << round.status();
    EXPECT_TRUE(absl::IsAborted(round->world)) << round->world;
    EXPECT_EQ(gpu.replica->loss_scale().value(), 65536);
    EXPECT_EQ(*gpu.replica->StateDigest(), before);
  }
}

TEST_P(PrecisionTest, GradientsThatAreNeverFiniteAreTold) {
  Side gpu(kGpu, std::make_shared<Mirror>(), Small(Precision::kFloat16));
  gpu.Steps(0, 1);
  const uint32_t before = *gpu.replica->StateDigest();
  gpu.model.steep = true;
  const auto round = gpu.Step(1);
  ASSERT_FALSE(round.ok());
  EXPECT_THAT(std::string(round.status().message()),
              HasSubstr("the gradients are not finite at step 2"));
  EXPECT_EQ(*gpu.replica->StateDigest(), before);
}

TEST_P(PrecisionTest, TheScaleIsPartOfTheState) {
  Side gpu(kGpu, std::make_shared<Mirror>(), Small(Precision::kFloat16));
  gpu.model.network->factor = 1e3;
  gpu.Steps(0, 1);
  const float scale = gpu.replica->loss_scale().value();
  ASSERT_LT(scale, 65536);
  // A checkpoint.
  const auto saved = checkpoint::OwnedSnapshot::Copy(*gpu.replica->View());
  Side other(kGpu, std::make_shared<Mirror>(), Small(Precision::kFloat16));
  checkpoint::Loaded loaded = Load(saved);
  ASSERT_TRUE(other.replica->Restore(loaded).ok());
  EXPECT_EQ(other.replica->loss_scale().value(), scale);
  EXPECT_EQ(*other.replica->StateDigest(), *gpu.replica->StateDigest());
  // One who joins copies the bytes.
  Side joiner(kGpu, std::make_shared<Mirror>(), Small(Precision::kFloat16));
  ASSERT_TRUE(gpu.replica->FetchState().ok());
  const auto from = gpu.replica->State();
  const auto to = joiner.replica->State();
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(from[i].size(), to[i].size());
    memcpy(to[i].data(), from[i].data(), from[i].size());
  }
  ASSERT_TRUE(joiner.replica->StoreState().ok());
  EXPECT_EQ(joiner.replica->loss_scale().value(), scale);
  // From and to jobs that have none.
  Side floats(kCpu, std::make_shared<Mirror>(), Small(Precision::kFloat32));
  checkpoint::Loaded again = Load(saved);
  ASSERT_TRUE(floats.replica->Restore(again).ok());
  const auto plain = checkpoint::OwnedSnapshot::Copy(*floats.replica->View());
  checkpoint::Loaded back = Load(plain);
  ASSERT_TRUE(other.replica->Restore(back).ok());
  EXPECT_EQ(other.replica->loss_scale().value(), 65536);
  // Members that compute in other types cannot train together.
  EXPECT_NE(floats.replica->LayoutDigest(), gpu.replica->LayoutDigest());
}

TEST_P(PrecisionTest, AccumulatedMinibatchesAreOneLargeOne) {
  for (const c10::Device device : {kCpu, kGpu}) {
    Side::Options options;
    options.plain = true;
    Side parts(device, std::make_shared<Mirror>(), options);
    Side whole(device, std::make_shared<Mirror>(), options);
    for (int64_t step = 0; step < 4; ++step) {
      std::vector<Batch> batches;
      std::vector<WeightedBatch> weighted;
      std::vector<torch::Tensor> features;
      std::vector<torch::Tensor> labels;
      for (int64_t i = 0; i < 4; ++i) {
        // The last one of a data set is shorter.
        batches.push_back(MakeBatch(4 * step + i, i == 3 ? 3 : 8));
        features.push_back(batches.back().features.tensor());
        labels.push_back(batches.back().labels);
      }
      for (const Batch& batch : batches) {
        weighted.push_back({&batch, batch.labels.size(0)});
      }
      Batch all;
      all.features = Features(torch::cat(features));
      all.labels = torch::cat(labels);
      const auto a = parts.trainer->Run(weighted, elastic::MemberWord(), 0.1);
      const auto b =
          whole.trainer->Run({{&all, 27}}, elastic::MemberWord(), 0.1);
      ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
      EXPECT_EQ(a->summary.total_records, b->summary.total_records);
      EXPECT_NEAR(a->summary.mean_loss, b->summary.mean_loss, 1e-5);
    }
    ExpectClose(parts, whole, 1e-5);
  }
}

TEST_P(PrecisionTest, ImagesWithTheirChannelsLastGiveTheSame) {
  for (const c10::Device device : {kCpu, kGpu}) {
    Side usual(device, std::make_shared<Mirror>());
    Side last(device, std::make_shared<Mirror>());
    for (int64_t i = 0; i < 3; ++i) {
      const Batch batch = MakeBatch(i, 8);
      Batch turned = batch;
      turned.features =
          Features(batch.features.tensor().expand({8, 1, 8, 8}).clone());
      turned = Pinned(ChannelsLast(turned), device);
      ASSERT_TRUE(usual.trainer->Run({{&batch, 8}}, {}, 0.1).ok());
      ASSERT_TRUE(last.trainer->Run({{&turned, 8}}, {}, 0.1).ok());
    }
    ExpectClose(usual, last, 1e-5);
  }
}

TEST_P(PrecisionTest, ChannelsStayLastOnTheirWayToTheDevice) {
  Batch batch;
  batch.features = Features(torch::randn({2, 3, 4, 5}));
  batch.labels = torch::zeros({2}, torch::kLong);
  const Batch turned = ChannelsLast(batch);
  EXPECT_TRUE(torch::equal(turned.features.tensor(), batch.features.tensor()));
  BatchMover mover(kGpu);
  const BatchMover::Moving moving = mover.Start(Pinned(turned, kGpu));
  mover.Arrive(moving);
  const torch::Tensor there = moving.batch.features.tensor();
  EXPECT_TRUE(there.is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(torch::equal(there.cpu(), batch.features.tensor()));
}

}  // namespace
}  // namespace elasticdl::worker::test
