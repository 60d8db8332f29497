// MNIST with fully connected layers, 784-128-64-10 by default.
#include <elasticdl/model.h>

namespace nn = torch::nn;

nn::Sequential custom_model(const elasticdl::Params& params) {
  const int64_t first = params.Get("hidden1", 128);
  const int64_t second = params.Get("hidden2", 64);
  return nn::Sequential(nn::Linear(784, first), nn::ReLU(),
                        nn::Linear(first, second), nn::ReLU(),
                        nn::Linear(second, 10));
}

torch::Tensor loss(const torch::Tensor& labels,
                   const torch::Tensor& predictions) {
  return nn::functional::cross_entropy(predictions, labels);
}

elasticdl::OptimizerSpec optimizer(const elasticdl::Params& params) {
  return elasticdl::SGD(params.Get("lr", 0.05), 0.9);
}

elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata) {
  elasticdl::ImageOptions options;
  options.shape = {784};
  return elasticdl::ImageBatch(records, mode, options);
}

elasticdl::Metrics eval_metrics_fn() {
  return {{"accuracy", elasticdl::Accuracy()}};
}
