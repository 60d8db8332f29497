// A network with buffers and parameters for two buckets, and a member of a
// world that trains it.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device.h"
#include "elastic_trainer.h"
#include "elasticdl/common/status.h"
#include "members.h"

namespace elasticdl::worker::test {

inline const c10::Device kGpu(c10::kCUDA, 0);
inline const c10::Device kCpu(c10::kCPU);

class LayersNetwork : public model::Network {
 public:
  // `plain`: no layer depends on the batch as a whole.
  explicit LayersNetwork(bool plain) {
    if (plain) {
      layers =
          torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(64, 40),
                                torch::nn::Tanh(), torch::nn::Linear(40, 10));
    }
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
    auto made = std::make_unique<LayersNetwork>(plain);
    network = made.get();
    return made;
  }
  absl::StatusOr<torch::Tensor> Loss(const torch::Tensor& labels,
                                     const Outputs& outputs) override {
    ++losses;
    const torch::Tensor loss =
        torch::nn::functional::cross_entropy(outputs.tensor(), labels);
    if (!steep) return loss;
    // A root of zero: no change of the loss, but a gradient without end.
    return loss + (outputs.tensor() * 0).sum().sqrt();
  }
  absl::StatusOr<OptimizerSpec> Optimizer() override {
    return OptimizerSpec::Parse(optimizer);
  }

  std::string optimizer = "SGD(lr=0.1,momentum=0.9,global_clipnorm=1)";
  bool plain = false;
  bool steep = false;
  LayersNetwork* network = nullptr;
  // How often one was computed.
  int losses = 0;
};

inline Batch MakeBatch(int64_t number, int64_t records) {
  torch::manual_seed(static_cast<uint64_t>(100 + number));
  Batch batch;
  batch.features = Features(torch::randn({records, 1, 8, 8}));
  batch.labels = torch::randint(10, {records}, torch::kLong);
  return batch;
}

// One member of a world.
struct Side {
  struct Options {
    GradientCompression compression = GradientCompression::kNone;
    Precision precision = Precision::kFloat32;
    bool plain = false;
    elastic::Watchdog* watchdog = nullptr;
    absl::Duration device_timeout = kReduceTimeout;
  };
  Side(c10::Device device, std::shared_ptr<collective::Communicator> world)
      : Side(device, std::move(world), Options()) {}
  Side(c10::Device device, std::shared_ptr<collective::Communicator> world,
       const Options& options) {
    const absl::Status made = SetUp(device, options);
    EXPECT_TRUE(made.ok()) << made;
    Enter(std::move(world));
  }
  // For those who expect that it fails.
  Side() = default;
  absl::Status SetUp(c10::Device device, const Options& options) {
    model.plain = options.plain;
    Execution execution;
    execution.device = device;
    execution.precision = options.precision;
    ELASTICDL_ASSIGN_OR_RETURN(
        replica,
        Replica::Create(model, {1}, /*with_optimizer=*/true, execution));
    return OnDevice("setting up", [&] {
      trainer = std::make_unique<ElasticTrainer>(*replica, options.compression,
                                                 options.watchdog,
                                                 options.device_timeout);
      return absl::OkStatus();
    });
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

inline void ExpectClose(Side& a, Side& b, double tolerance) {
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

}  // namespace elasticdl::worker::test
