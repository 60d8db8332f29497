// A model with BatchNorm that tells its statistics: an evaluation gives, per
// record, the running mean, the running variance and the number of minibatches
// that they come from. Records are lines "id,x,y".
//
//   pace=DIR     as in linear.cc
#include <elasticdl/model.h>

#include <memory>
#include <string>

#include "pace.h"

struct Net : torch::nn::Module {
  Net()
      : norm(register_module("norm", torch::nn::BatchNorm1d(1))),
        out(register_module("out", torch::nn::Linear(1, 1))) {}

  torch::Tensor forward(const elasticdl::Features& features) {
    const torch::Tensor x = norm(features.tensor());
    if (is_training()) return out(x);
    const torch::Tensor told =
        torch::stack({norm->running_mean[0], norm->running_var[0],
                      norm->num_batches_tracked.to(torch::kFloat)});
    return told.expand({x.size(0), 3});
  }

  torch::nn::BatchNorm1d norm;
  torch::nn::Linear out;
};

std::shared_ptr<Net> custom_model() { return std::make_shared<Net>(); }

torch::Tensor loss(const torch::Tensor& labels,
                   const torch::Tensor& predictions) {
  return (predictions.squeeze(1) - labels).square().mean();
}

elasticdl::OptimizerSpec optimizer() { return elasticdl::SGD(0.001); }

elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata) {
  const auto n = static_cast<int64_t>(records.size());
  torch::Tensor x = torch::empty({n, 1});
  for (int64_t i = 0; i < n; ++i) {
    const auto fields = elasticdl::Value(
        elasticdl::data::ParseCsvRecord(records[static_cast<size_t>(i)]));
    x.data_ptr<float>()[i] = std::stof(fields.at(1));
  }
  return {elasticdl::Features(x), torch::zeros({n})};
}

elasticdl::Metrics eval_metrics_fn() {
  const auto column = [](int64_t index, int power) {
    return elasticdl::Mean(
        [=](const torch::Tensor&, const torch::Tensor& outputs) {
          return outputs.select(1, index).to(torch::kDouble).pow(power);
        });
  };
  return {{"mean", column(0, 1)},
          {"mean_squared", column(0, 2)},
          {"variance", column(1, 1)},
          {"minibatches", column(2, 1)},
          {"minibatches_squared", column(2, 2)}};
}

elasticdl::Callbacks callbacks(const elasticdl::Params& params) {
  if (!params.Has("pace")) return {};
  return {std::make_shared<Pace>(params.Get("pace", ""))};
}
