// DeepFM on Frappe: a factorization machine and dense layers over the same
// embeddings of the ten ids of a record.
#include <elasticdl/model.h>

namespace nn = torch::nn;

namespace {
constexpr int64_t kNumFields = 10;
constexpr int64_t kInputDim = 5383;
}  // namespace

struct DeepFm : nn::Module {
  explicit DeepFm(int64_t dim)
      : embedding(register_module(
            "embedding",
            elasticdl::Embedding(
                elasticdl::EmbeddingOptions(dim).input_dim(kInputDim).mask_zero(
                    true)))),
        bias(register_module("bias",
                             elasticdl::Embedding(elasticdl::EmbeddingOptions(1)
                                                      .input_dim(kInputDim)
                                                      .combiner("sum")
                                                      .initializer("zeros")
                                                      .mask_zero(true)))),
        fc1(register_module("fc1", nn::Linear(kNumFields * dim, 64))),
        fc2(register_module("fc2", nn::Linear(64, 1))) {}

  elasticdl::Outputs forward(const elasticdl::Features& features) {
    const torch::Tensor& ids = features["feature"];
    const torch::Tensor rows = embedding(ids);  // (B, fields, dim)
    // The sum of the dot products of all pairs.
    const torch::Tensor pairs =
        (rows.sum(1).square() - rows.square().sum(1)).sum(1) / 2;
    const torch::Tensor deep = fc2(torch::relu(fc1(rows.flatten(1))));
    const torch::Tensor logits = bias(ids).squeeze(1) + pairs + deep.squeeze(1);
    return {{"logits", logits}, {"probs", logits.sigmoid()}};
  }

  elasticdl::Embedding embedding, bias;
  nn::Linear fc1, fc2;
};

std::shared_ptr<DeepFm> custom_model(const elasticdl::Params& params) {
  return std::make_shared<DeepFm>(params.Get("embedding_dim", 16));
}

torch::Tensor loss(const torch::Tensor& labels,
                   const elasticdl::Outputs& outputs) {
  return torch::binary_cross_entropy_with_logits(outputs["logits"],
                                                 labels.to(torch::kFloat));
}

elasticdl::OptimizerSpec optimizer(const elasticdl::Params& params) {
  return elasticdl::Adam(params.Get("lr", 0.001));
}

elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata) {
  const auto examples = elasticdl::ParseExamples(records);
  elasticdl::Batch batch;
  batch.features.Add("feature",
                     elasticdl::Int64Feature(examples, "feature", kNumFields));
  if (mode != elasticdl::Mode::kPrediction) {
    batch.labels = elasticdl::Int64Feature(examples, "label", 1).squeeze(1);
  }
  return batch;
}

elasticdl::Metrics eval_metrics_fn() {
  return {{"accuracy", elasticdl::BinaryAccuracy(0.5, "probs")},
          {"auc", elasticdl::Auc(/*logits=*/false, "probs")}};
}
