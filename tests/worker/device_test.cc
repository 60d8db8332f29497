// Training on the test device, under every schedule of its streams: the same as
// on the CPU.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <test_cudart.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batch_mover.h"
#include "device_optimizer.h"
#include "elastic_trainer.h"
#include "elasticdl/collective/device_communicator.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/status.h"
#include "members.h"

namespace elasticdl::worker::test {
namespace {

using collective::DataType;
using testing::HasSubstr;

const c10::Device kGpu(c10::kCUDA, 0);
const c10::Device kCpu(c10::kCPU);

// ---- a world of two whose other member has the same gradients ----

class Mirror : public collective::Communicator {
 public:
  int rank() const override { return 1; }
  int size() const override { return 2; }
  absl::Status AllReduce(void* data, size_t count, DataType type,
                         absl::Duration) override {
    ELASTICDL_RETURN_IF_ERROR(Count());
    const torch::ScalarType scalar =
        type == DataType::kFloat32 ? torch::kFloat32 : torch::kBFloat16;
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
  void Abort(const std::string&) override {
    MutexLock lock(mu_);
    aborted_ = true;
  }

  // The next such call fails.
  void FailAfter(int calls) {
    MutexLock lock(mu_);
    fail_after_ = calls;
  }

 protected:
  absl::Status Count() {
    MutexLock lock(mu_);
    if (aborted_ || fail_after_-- == 0) {
      return absl::AbortedError("rank 0 is gone");
    }
    return absl::OkStatus();
  }

 private:
  Mutex mu_;
  bool aborted_ ABSL_GUARDED_BY(mu_) = false;
  int fail_after_ ABSL_GUARDED_BY(mu_) = -1;
};

// The same on the device, as a library with a stream of its own does it.
class DeviceMirror : public Mirror, public collective::DeviceCommunicator {
 public:
  DeviceMirror() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              cudaSuccess);
  }
  ~DeviceMirror() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  collective::DeviceCommunicator* device() override { return this; }
  int device_index() const override { return 0; }
  absl::Status AllReduce(void*, size_t, DataType, absl::Duration) override {
    return absl::InternalError("gradients of a device are summed there");
  }
  absl::Status AllReduce(void* data, size_t count, DataType type,
                         collective::DeviceEvent event,
                         absl::Duration) override {
    const absl::Status status = Count();
    auto* const sum = new Sum{data, count, type, status.ok()};
    failed_ = failed_ || !status.ok();
    const auto cuda_event = static_cast<cudaEvent_t>(event);
    EXPECT_EQ(cudaStreamWaitEvent(stream_, cuda_event, 0), cudaSuccess);
    EXPECT_EQ(cudaLaunchHostFunc(stream_, &Run, sum), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(cuda_event, stream_), cudaSuccess);
    return absl::OkStatus();
  }
  absl::Status Wait(collective::DeviceEvent event, absl::Duration) override {
    EXPECT_EQ(cudaEventSynchronize(static_cast<cudaEvent_t>(event)),
              cudaSuccess);
    return failed_ ? absl::AbortedError("rank 0 is gone") : absl::OkStatus();
  }

 private:
  struct Sum {
    void* data;
    size_t count;
    DataType type;
    bool valid;
  };
  static void Run(void* context) {
    const std::unique_ptr<Sum> sum(static_cast<Sum*>(context));
    void* host = test_cudart_host(sum->data);
    const size_t bytes = sum->count * collective::SizeOf(sum->type);
    // What is left in the buffer of a sum that failed is anything.
    if (!sum->valid) memset(host, 0x7F, bytes);
    if (!sum->valid) return;
    for (size_t i = 0; i < sum->count; ++i) {
      if (sum->type == DataType::kFloat32) {
        static_cast<float*>(host)[i] *= 2;
      } else {
        auto* const value = static_cast<at::BFloat16*>(host) + i;
        *value = static_cast<float>(*value) * 2;
      }
    }
  }

  cudaStream_t stream_ = nullptr;
  bool failed_ = false;
};

// ---- a network with buffers, and parameters for two buckets ----

class LayersNetwork : public model::Network {
 public:
  LayersNetwork() {
    for (const auto& item : layers->named_parameters()) {
      parameters_.emplace_back(item.key(), item.value());
    }
    for (const auto& item : layers->named_buffers()) {
      buffers_.emplace_back(item.key(), item.value());
    }
  }
  const Tensors& parameters() const override { return parameters_; }
  const Tensors& buffers() const override { return buffers_; }
  void Train() override { layers->train(); }
  void Eval() override { layers->eval(); }
  absl::StatusOr<Outputs> Forward(const Features& features) override {
    try {
      torch::Tensor out = layers->forward(features.tensor());
      if (mix_devices) out = out + torch::ones({out.size(1)});
      return Outputs(out * factor);
    } catch (const std::exception& error) {
      return absl::InternalError(error.what());
    }
  }
  const std::vector<ShardedTable>& tables() const override { return tables_; }
  void SetRowSource(RowSource*) override {}
  absl::StatusOr<std::string> Serialize() const override {
    for (const auto& [name, tensor] : parameters_) {
      if (!tensor.is_cpu()) return absl::InternalError("not on the CPU");
    }
    return "";
  }

  torch::nn::Sequential layers{
      torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).bias(false)),
      torch::nn::BatchNorm2d(4),
      torch::nn::ReLU(),
      torch::nn::Flatten(),
      torch::nn::Linear(4 * 6 * 6, 2000),
      torch::nn::ReLU(),
      torch::nn::Linear(2000, 10)};
  bool mix_devices = false;
  double factor = 1;

 private:
  Tensors parameters_;
  Tensors buffers_;
  const std::vector<ShardedTable> tables_;
};

class LayersModel : public FaultyModel {
 public:
  LayersModel() : FaultyModel(CountedData()) {}
  absl::StatusOr<std::unique_ptr<model::Network>> CreateNetwork(
      const model::NetworkOptions& options) override {
    torch::manual_seed(options.seed);
    auto made = std::make_unique<LayersNetwork>();
    network = made.get();
    return made;
  }
  absl::StatusOr<torch::Tensor> Loss(const torch::Tensor& labels,
                                     const Outputs& outputs) override {
    return torch::nn::functional::cross_entropy(outputs.tensor(), labels);
  }
  absl::StatusOr<OptimizerSpec> Optimizer() override {
    return OptimizerSpec::Parse(optimizer);
  }

  std::string optimizer = "SGD(lr=0.1,momentum=0.9,global_clipnorm=1)";
  LayersNetwork* network = nullptr;
};

Batch MakeBatch(int64_t number, int64_t records) {
  torch::manual_seed(static_cast<uint64_t>(100 + number));
  Batch batch;
  batch.features = Features(torch::randn({records, 1, 8, 8}));
  batch.labels = torch::randint(10, {records}, torch::kLong);
  return batch;
}

// One member of a world.
struct Side {
  Side(c10::Device device, std::shared_ptr<collective::Communicator> world,
       GradientCompression compression = GradientCompression::kNone,
       const std::string& optimizer = "") {
    if (!optimizer.empty()) model.optimizer = optimizer;
    Execution execution;
    execution.device = device;
    auto made = Replica::Create(model, {1}, /*with_optimizer=*/true, execution);
    EXPECT_TRUE(made.ok()) << made.status();
    replica = *std::move(made);
    trainer = std::make_unique<ElasticTrainer>(*replica, compression);
    Enter(std::move(world));
  }
  void Enter(std::shared_ptr<collective::Communicator> world) {
    trainer->EnterWorld(std::move(world), 8);
  }
  absl::StatusOr<Round> Step(int64_t number) {
    // A short minibatch every third time.
    const int64_t records = number % 3 == 2 ? 3 : 8;
    const Batch batch = MakeBatch(number, records);
    return trainer->Run({{&batch, records}}, elastic::MemberWord(), 0.1);
  }
  void Steps(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto round = Step(i);
      ASSERT_TRUE(round.ok()) << round.status();
      ASSERT_TRUE(round->world.ok()) << round->world;
      ASSERT_TRUE(round->stepped);
      last = *round;
    }
  }
  LayersModel model;
  std::unique_ptr<Replica> replica;
  std::unique_ptr<ElasticTrainer> trainer;
  Round last;
};

void ExpectClose(Side& a, Side& b, double tolerance) {
  EXPECT_EQ(a.replica->step(), b.replica->step());
  const auto compare = [&](const NamedTensors& first,
                           const NamedTensors& second) {
    for (size_t i = 0; i < first.size(); ++i) {
      const torch::Tensor x = first[i].second.detach().cpu();
      const torch::Tensor y = second[i].second.detach().cpu();
      EXPECT_TRUE(torch::allclose(x, y, tolerance, tolerance))
          << first[i].first << ": " << (x - y).abs().max().item<double>();
    }
  };
  compare(a.replica->network().parameters(), b.replica->network().parameters());
  compare(a.replica->buffers(), b.replica->buffers());
}

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
  Side cpu(kCpu, std::make_shared<Mirror>(), GradientCompression::kBFloat16);
  Side host(kGpu, std::make_shared<Mirror>(), GradientCompression::kBFloat16);
  Side device(kGpu, std::make_shared<DeviceMirror>(),
              GradientCompression::kBFloat16);
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
      const uint32_t before = gpu.replica->StateDigest();
      world->FailAfter(call);
      const auto round = gpu.Step(2);
      ASSERT_TRUE(round.ok()) << round.status();
      EXPECT_TRUE(absl::IsAborted(round->world)) << round->world;
      EXPECT_EQ(gpu.replica->StateDigest(), before);
      // Steps of the next world.
      cpu.Enter(std::make_shared<Mirror>());
      gpu.Enter(make());
      cpu.Steps(2, 4);
      gpu.Steps(2, 4);
      ExpectClose(cpu, gpu, 1e-5);
    }
  }
}

TEST_P(DeviceTest, ALossThatIsNoNumberIsTold) {
  Side gpu(kGpu, std::make_shared<DeviceMirror>());
  gpu.Steps(0, 1);
  const uint32_t before = gpu.replica->StateDigest();
  gpu.model.network->factor = std::numeric_limits<double>::quiet_NaN();
  const auto round = gpu.Step(1);
  ASSERT_FALSE(round.ok());
  EXPECT_THAT(std::string(round.status().message()),
              HasSubstr("nan at step 2; a smaller learning rate"));
  EXPECT_EQ(gpu.replica->StateDigest(), before);
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
  const auto first = checkpoint::OwnedSnapshot::Copy(cpu.replica->View());
  checkpoint::Loaded there = load(first);
  ASSERT_TRUE(gpu.replica->Restore(there).ok());
  gpu.trainer->AcceptBuffers();
  EXPECT_EQ(gpu.replica->StateDigest(), cpu.replica->StateDigest());
  EXPECT_EQ(gpu.replica->LayoutDigest(), cpu.replica->LayoutDigest());
  gpu.Steps(2, 4);
  const auto second = checkpoint::OwnedSnapshot::Copy(gpu.replica->View());
  checkpoint::Loaded back = load(second);
  const uint32_t digest = gpu.replica->StateDigest();
  ASSERT_TRUE(cpu.replica->Restore(back).ok());
  EXPECT_EQ(cpu.replica->StateDigest(), digest);
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

}  // namespace
}  // namespace elasticdl::worker::test
