// A model that counts what is in it, whatever order it came in: every minibatch
// adds -1 to each of many parameters, every record -1 to the row of its id. So
// the trained values tell exactly what parameter servers have applied. Records
// are lines "id,x,y".
//
//   pace=DIR     as in linear.cc
//   dense=N      how many parameters
#include <elasticdl/model.h>

#include <memory>
#include <string>

#include "pace.h"

struct Net : torch::nn::Module {
  explicit Net(const elasticdl::Params& params)
      : count(register_parameter(
            "count",
            torch::zeros({static_cast<int64_t>(params.Get("dense", 40000))}))),
        seen(register_module(
            "seen", elasticdl::Embedding(
                        elasticdl::EmbeddingOptions(2).initializer("zeros")))) {
  }

  // Per record: the least and the most that a parameter says, and the same of
  // the record's row.
  torch::Tensor forward(const elasticdl::Features& features) {
    const torch::Tensor rows = seen(features.tensor());
    if (is_training()) return (count.sum() + rows.sum()).reshape({1, 1});
    const torch::Tensor all = torch::stack({count.min(), count.max()});
    return torch::cat({all.expand({rows.size(0), 2}), rows}, 1);
  }

  torch::Tensor count;
  elasticdl::Embedding seen;
};

std::shared_ptr<Net> custom_model(const elasticdl::Params& params) {
  return std::make_shared<Net>(params);
}

torch::Tensor loss(const torch::Tensor& labels,
                   const torch::Tensor& predictions) {
  return predictions.sum();
}

elasticdl::OptimizerSpec optimizer() { return elasticdl::SGD(1); }

elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata) {
  const auto n = static_cast<int64_t>(records.size());
  torch::Tensor ids = torch::empty({n}, torch::kLong);
  for (int64_t i = 0; i < n; ++i) {
    const auto fields = elasticdl::Value(
        elasticdl::data::ParseCsvRecord(records[static_cast<size_t>(i)]));
    ids.data_ptr<int64_t>()[i] = std::stoll(fields.at(0));
  }
  return {elasticdl::Features(ids), torch::zeros({n})};
}

// Equal only if every record's row has the same value.
elasticdl::Metrics eval_metrics_fn() {
  const auto column = [](int64_t index, int power) {
    return elasticdl::Mean(
        [=](const torch::Tensor&, const torch::Tensor& outputs) {
          return outputs.select(1, index).pow(power);
        });
  };
  return {{"least", column(0, 1)},
          {"most", column(1, 1)},
          {"row", column(2, 1)},
          {"row_squared", column(2, 2)},
          {"other_row", column(3, 1)}};
}

elasticdl::Callbacks callbacks(const elasticdl::Params& params) {
  if (!params.Has("pace")) return {};
  return {std::make_shared<Pace>(params.Get("pace", ""))};
}
