// A factorization machine over many embedding rows: each record of Frappe's ten
// ids is given ten ids below `rows`, spread over all of them. For benchmarks of
// parameter servers that hold more than a few thousand rows.
#include <elasticdl/model.h>

namespace {
constexpr int64_t kNumFields = 10;
}  // namespace

struct ManyRows : torch::nn::Module {
  ManyRows(int64_t rows_in_all, int64_t dim)
      : rows(rows_in_all),
        embedding(register_module(
            "embedding",
            elasticdl::Embedding(
                elasticdl::EmbeddingOptions(dim).input_dim(rows_in_all)))),
        fc(register_module("fc", torch::nn::Linear(kNumFields * dim, 1))) {}

  elasticdl::Outputs forward(const elasticdl::Features& features) {
    const torch::Tensor values = embedding(features["feature"] % rows);
    const torch::Tensor pairs =
        (values.sum(1).square() - values.square().sum(1)).sum(1) / 2;
    return {{"logits", pairs + fc(values.flatten(1)).squeeze(1)}};
  }

  int64_t rows;
  elasticdl::Embedding embedding;
  torch::nn::Linear fc;
};

std::shared_ptr<ManyRows> custom_model(const elasticdl::Params& params) {
  return std::make_shared<ManyRows>(params.Get("rows", 1000000),
                                    params.Get("embedding_dim", 8));
}

torch::Tensor loss(const torch::Tensor& labels,
                   const elasticdl::Outputs& outputs) {
  return torch::binary_cross_entropy_with_logits(outputs["logits"],
                                                 labels.to(torch::kFloat));
}

elasticdl::OptimizerSpec optimizer() { return elasticdl::Adam(0.001); }

elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata) {
  const auto examples = elasticdl::ParseExamples(records);
  const torch::Tensor ids =
      elasticdl::Int64Feature(examples, "feature", kNumFields);
  // A number for the record that depends on all its ids, then ten from it.
  const torch::Tensor powers =
      torch::full({kNumFields}, 1000003, torch::kInt64).cumprod(0);
  const torch::Tensor record = (ids * powers).sum(1, /*keepdim=*/true);
  const torch::Tensor mixed =
      (record + powers) * static_cast<int64_t>(0x9E3779B97F4A7C15);
  elasticdl::Batch batch;
  batch.features.Add("feature",
                     mixed.bitwise_right_shift(20).bitwise_and(0x7FFFFFFFFFF));
  if (mode != elasticdl::Mode::kPrediction) {
    batch.labels = elasticdl::Int64Feature(examples, "label", 1).squeeze(1);
  }
  return batch;
}

elasticdl::Metrics eval_metrics_fn() {
  return {{"auc", elasticdl::Auc(/*logits=*/true, "logits")}};
}
