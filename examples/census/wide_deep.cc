// Wide & deep on census data (columns of UCI's adult data set): the wide part
// has one weight per category, the deep part has dense layers over embeddings.
#include <elasticdl/model.h>

#include <array>

namespace nn = torch::nn;

namespace {

using elasticdl::Discretization;
using elasticdl::Hashing;

struct Number {
  const char* name;
  Discretization buckets;
};
const std::vector<Number>& Numbers() {
  static const auto& numbers = *new std::vector<Number>{
      {"age", Discretization(
                  {22, 27, 32, 37, 42, 47, 52, 57, 62, 67, 72, 77, 82, 87})},
      {"education-num",
       Discretization({2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})},
      {"capital-gain",
       Discretization({500, 1000, 1500, 2000, 2500, 3000, 3500, 5000, 10000})},
      {"capital-loss", Discretization({500, 1000, 1500, 2000, 2500})},
      {"hours-per-week", Discretization({10, 20, 30, 40, 50, 60, 70, 80, 90})},
  };
  return numbers;
}

struct Category {
  const char* name;
  Hashing hashing;
};
const std::vector<Category>& Categories() {
  static const auto& categories = *new std::vector<Category>{
      {"workclass", Hashing(32)},
      {"education", Hashing(64)},
      {"marital-status", Hashing(32)},
      {"occupation", Hashing(64)},
      {"relationship", Hashing(32)},
      {"race", Hashing(16)},
      {"sex", Hashing(8)},
      {"native-country", Hashing(64)},
  };
  return categories;
}

// All features share one id space.
const elasticdl::ConcatenateWithOffset& Ids() {
  static const auto& ids = *[] {
    std::vector<int64_t> sizes;
    for (const Number& n : Numbers()) sizes.push_back(n.buckets.size());
    for (const Category& c : Categories()) sizes.push_back(c.hashing.size());
    return new elasticdl::ConcatenateWithOffset(sizes);
  }();
  return ids;
}

int64_t NumFeatures() {
  return static_cast<int64_t>(Numbers().size() + Categories().size());
}

}  // namespace

struct WideDeep : nn::Module {
  explicit WideDeep(int64_t dim)
      : wide(register_module("wide",
                             elasticdl::Embedding(elasticdl::EmbeddingOptions(1)
                                                      .input_dim(Ids().size())
                                                      .combiner("sum")
                                                      .initializer("zeros")))),
        deep(register_module(
            "deep",
            elasticdl::Embedding(
                elasticdl::EmbeddingOptions(dim).input_dim(Ids().size())))),
        fc1(register_module("fc1", nn::Linear(NumFeatures() * dim, 64))),
        fc2(register_module("fc2", nn::Linear(64, 32))),
        fc3(register_module("fc3", nn::Linear(32, 1))) {}

  elasticdl::Outputs forward(const elasticdl::Features& features) {
    const torch::Tensor& ids = features["ids"];
    torch::Tensor x = deep(ids).flatten(1);
    x = torch::relu(fc2(torch::relu(fc1(x))));
    const torch::Tensor logits = (wide(ids) + fc3(x)).squeeze(1);
    return {{"logits", logits}, {"probs", logits.sigmoid()}};
  }

  elasticdl::Embedding wide, deep;
  nn::Linear fc1, fc2, fc3;
};

std::shared_ptr<WideDeep> custom_model(const elasticdl::Params& params) {
  return std::make_shared<WideDeep>(params.Get("dim", 8));
}

torch::Tensor loss(const torch::Tensor& labels,
                   const elasticdl::Outputs& outputs) {
  return torch::binary_cross_entropy_with_logits(outputs["logits"],
                                                 labels.to(torch::kFloat));
}

elasticdl::OptimizerSpec optimizer() { return elasticdl::Adam(0.001); }

elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata) {
  const auto n = static_cast<int64_t>(records.size());
  torch::Tensor ids = torch::empty({n, NumFeatures()}, torch::kLong);
  torch::Tensor labels = torch::zeros({n}, torch::kLong);
  int64_t* id = ids.data_ptr<int64_t>();
  for (size_t i = 0; i < records.size(); ++i) {
    const auto example =
        elasticdl::Value(elasticdl::data::ExampleView::Parse(records[i]));
    size_t feature = 0;
    for (const Number& n : Numbers()) {
      const float value = elasticdl::Value(example.Float(n.name));
      *id++ = Ids()(feature++, n.buckets(value));
    }
    for (const Category& c : Categories()) {
      const auto text = elasticdl::Value(example.Bytes(c.name));
      *id++ = Ids()(feature++, c.hashing(text));
    }
    if (mode != elasticdl::Mode::kPrediction) {
      labels.data_ptr<int64_t>()[i] = elasticdl::Value(example.Int64("label"));
    }
  }
  return {elasticdl::Features{{"ids", ids}}, labels};
}

elasticdl::Metrics eval_metrics_fn() {
  return {{"accuracy", elasticdl::BinaryAccuracy(0.5, "probs")},
          {"auc", elasticdl::Auc(/*logits=*/false, "probs")}};
}
