// A linear regression with two values of each user's own, so small that a test
// can compute what servers must hold. Records are lines "id,x,y"; the user is
// id % 50. The prediction is user[0] + user[1] x + weight[0] + weight[1] x, the
// loss the mean of the squares of its errors.
//
//   pace=DIR     as in linear.cc
#include <elasticdl/model.h>

#include <memory>
#include <string>

#include "pace.h"

struct Net : torch::nn::Module {
  Net()
      : weight(register_parameter("weight", torch::zeros({2}))),
        user(register_module(
            "user",
            elasticdl::Embedding(
                elasticdl::EmbeddingOptions(2).initializer("constant(0.5)")))) {
  }

  torch::Tensor forward(const elasticdl::Features& features) {
    const torch::Tensor& x = features["x"];
    const torch::Tensor ones_and_x = torch::stack({torch::ones_like(x), x}, 1);
    return ((user(features["user"]) + weight) * ones_and_x).sum(1);
  }

  torch::Tensor weight;
  elasticdl::Embedding user;
};

std::shared_ptr<Net> custom_model() { return std::make_shared<Net>(); }

torch::Tensor loss(const torch::Tensor& labels,
                   const torch::Tensor& predictions) {
  return torch::mse_loss(predictions, labels);
}

elasticdl::OptimizerSpec optimizer() { return elasticdl::SGD(0.1); }

elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata) {
  const auto n = static_cast<int64_t>(records.size());
  torch::Tensor user = torch::empty({n}, torch::kLong);
  torch::Tensor x = torch::empty({n});
  torch::Tensor y = torch::empty({n});
  for (int64_t i = 0; i < n; ++i) {
    const auto fields = elasticdl::Value(
        elasticdl::data::ParseCsvRecord(records[static_cast<size_t>(i)]));
    user.data_ptr<int64_t>()[i] = std::stoll(fields.at(0)) % 50;
    x.data_ptr<float>()[i] = std::stof(fields.at(1));
    y.data_ptr<float>()[i] = std::stof(fields.at(2));
  }
  return {elasticdl::Features{{"user", user}, {"x", x}}, y};
}

elasticdl::Metrics eval_metrics_fn() { return {}; }

elasticdl::Callbacks callbacks(const elasticdl::Params& params) {
  if (!params.Has("pace")) return {};
  return {std::make_shared<Pace>(params.Get("pace", ""))};
}
