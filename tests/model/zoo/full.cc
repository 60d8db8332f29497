// A model file with everything that the contract knows.
#include <elasticdl/model.h>

#include <fstream>

#include "helper.h"

struct Net : torch::nn::Module {
  explicit Net(int64_t hidden)
      : first(register_module("first", torch::nn::Linear(2, hidden))),
        second(register_module("second", torch::nn::Linear(hidden, 2))),
        count(register_buffer("count", torch::zeros({1}))) {}
  torch::Tensor forward(torch::Tensor x) {
    TORCH_CHECK(x.size(1) == 2, "two columns are wanted");
    return second(first(x).relu());
  }
  torch::nn::Linear first;
  torch::nn::Linear second;
  torch::Tensor count;
};

std::shared_ptr<Net> custom_model(const elasticdl::Params& params) {
  return std::make_shared<Net>(params.Get("hidden", 8));
}

torch::Tensor loss(const torch::Tensor& labels,
                   const torch::Tensor& predictions) {
  return torch::nn::functional::cross_entropy(predictions, labels);
}

torch::Tensor vector_loss(const torch::Tensor& labels,
                          const torch::Tensor& predictions) {
  return (predictions - labels.unsqueeze(1)).square();
}

elasticdl::OptimizerSpec optimizer(double lr = 0.25) {
  return elasticdl::SGD(lr, 0.9);
}

// Records are "x y label"; see helper.h.
elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata) {
  return ParseNumbers(records, mode);
}

elasticdl::Metrics eval_metrics_fn() {
  return {{"accuracy", elasticdl::Accuracy()},
          {"margin", elasticdl::Mean([](const torch::Tensor& labels,
                                        const torch::Tensor& predictions) {
             return (predictions.select(1, 0) - predictions.select(1, 1)).abs();
           })}};
}

struct Failing : elasticdl::Callback {
  void on_train_end() override { throw std::runtime_error("at the end"); }
};

elasticdl::Callbacks callbacks() {
  return {std::make_shared<elasticdl::LearningRateScheduler>(
              [](int64_t step) { return 1.0 / static_cast<double>(step); }),
          std::make_shared<elasticdl::MaxStepsStopping>(10),
          std::make_shared<Failing>()};
}

struct OneShard : elasticdl::data::DataReader {
  explicit OneShard(std::string origin) : name(std::move(origin)) {}
  absl::StatusOr<std::vector<elasticdl::data::Shard>> CreateShards() override {
    return std::vector<elasticdl::data::Shard>{{name, 0, 3}};
  }
  absl::StatusOr<elasticdl::data::RecordBatch> Read(const std::string&, int64_t,
                                                    int64_t) override {
    return absl::UnimplementedError("not here");
  }
  const elasticdl::Metadata& metadata() const override { return facts; }
  std::string name;
  elasticdl::Metadata facts;
};

std::unique_ptr<elasticdl::data::DataReader> custom_data_reader(
    const std::string& origin, const elasticdl::Params& params) {
  return std::make_unique<OneShard>(origin + params.Get("suffix", ""));
}

struct PredictionOutputsProcessor {
  PredictionOutputsProcessor(const std::string& output_dir,
                             const elasticdl::Params& params)
      : out(output_dir + "/" + params.Get("file", "rows")) {}
  void process(const torch::Tensor& predictions, int64_t worker_id) {
    if (worker_id < 0) throw std::invalid_argument("negative worker");
    out << predictions.size(0) << std::endl;
  }
  std::ofstream out;
};
