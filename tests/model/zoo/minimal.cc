// Little of the contract: a class as the model, a function in an anonymous
// namespace, a loss by another name, several outputs. No `loss`, no metrics.
#include <elasticdl/model.h>

#include "helper.h"

struct CustomModel : torch::nn::Module {
  CustomModel() : fc(register_module("fc", torch::nn::Linear(2, 1))) {}
  elasticdl::Outputs forward(const elasticdl::Features& features) {
    const torch::Tensor logits = fc(features.tensor()).squeeze(1);
    return {{"logits", logits}, {"probs", logits.sigmoid()}};
  }
  torch::nn::Linear fc;
};

torch::nn::Sequential sequential() {
  return torch::nn::Sequential(torch::nn::Linear(2, 1));
}

torch::Tensor my_loss(const torch::Tensor& labels,
                      const elasticdl::Outputs& outputs) {
  return torch::binary_cross_entropy_with_logits(outputs["logits"],
                                                 labels.to(torch::kFloat));
}

namespace {
elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode) {
  return ParseNumbers(records, mode);
}
}  // namespace
