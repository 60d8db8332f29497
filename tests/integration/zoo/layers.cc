// A regression on ids with nothing but layers of torch. Records are lines
// "id,x,y". With parameter servers, the rows of `users` and `words` live there:
// both have more than 2 MiB.
//
//   pace=DIR     as in linear.cc
//   first=N      added to the ids of users; 20000 and more are too large
#include <elasticdl/model.h>

#include <memory>
#include <string>

#include "pace.h"

namespace nn = torch::nn;

constexpr int64_t kUsers = 20000;
constexpr int64_t kWords = 30000;

struct Net : nn::Module {
  Net()
      : users(register_module(
            "users",
            nn::Embedding(nn::EmbeddingOptions(kUsers, 32).padding_idx(7)))),
        words(register_module(
            "words",
            nn::EmbeddingBag(
                nn::EmbeddingBagOptions(kWords, 20).mode(torch::kMean)))),
        kinds(register_module("kinds", nn::Embedding(10, 4))),
        out(register_module("out", nn::Linear(56, 1))) {
    nn::init::uniform_(words->weight, -0.5, 0.5);
  }

  torch::Tensor forward(const elasticdl::Features& features) {
    return out(torch::cat({users(features["user"]), words(features["words"]),
                           kinds(features["kind"])},
                          1))
        .squeeze(1);
  }

  nn::Embedding users;
  nn::EmbeddingBag words;
  nn::Embedding kinds;
  nn::Linear out;
};

std::shared_ptr<Net> custom_model() { return std::make_shared<Net>(); }

torch::Tensor loss(const torch::Tensor& labels,
                   const torch::Tensor& predictions) {
  return torch::mse_loss(predictions, labels);
}

elasticdl::OptimizerSpec optimizer() { return elasticdl::Adagrad(0.05); }

elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata,
                      const elasticdl::Params& params) {
  const auto n = static_cast<int64_t>(records.size());
  const int64_t first = params.Get("first", 0);
  torch::Tensor user = torch::empty({n}, torch::kLong);
  torch::Tensor words = torch::empty({n, 3}, torch::kLong);
  torch::Tensor kind = torch::empty({n}, torch::kLong);
  torch::Tensor y = torch::empty({n});
  for (int64_t i = 0; i < n; ++i) {
    const auto fields = elasticdl::Value(
        elasticdl::data::ParseCsvRecord(records[static_cast<size_t>(i)]));
    const int64_t id = std::stoll(fields.at(0));
    user.data_ptr<int64_t>()[i] = first + id % 100;
    for (int64_t k = 0; k < 3; ++k) {
      words.data_ptr<int64_t>()[3 * i + k] = (id * 1009 + k * 77) % kWords;
    }
    kind.data_ptr<int64_t>()[i] = id % 10;
    y.data_ptr<float>()[i] = std::stof(fields.at(2));
  }
  elasticdl::Batch batch{
      elasticdl::Features{{"user", user}, {"words", words}, {"kind", kind}},
      {}};
  if (mode != elasticdl::Mode::kPrediction) batch.labels = y;
  return batch;
}

elasticdl::Metrics eval_metrics_fn() {
  return {{"mse", elasticdl::MeanSquaredError()}};
}

elasticdl::Callbacks callbacks(const elasticdl::Params& params) {
  if (!params.Has("pace")) return {};
  return {std::make_shared<Pace>(params.Get("pace", ""))};
}
