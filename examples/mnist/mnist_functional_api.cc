// MNIST with a convolutional network written as a sequence of layers.
#include <elasticdl/model.h>

namespace nn = torch::nn;

nn::Sequential custom_model(const elasticdl::Params& params) {
  const int64_t channels = params.Get("channels", 16);
  return nn::Sequential(
      nn::Conv2d(nn::Conv2dOptions(1, channels, 5)), nn::ReLU(),
      nn::MaxPool2d(2),
      nn::Conv2d(nn::Conv2dOptions(channels, 2 * channels, 5)), nn::ReLU(),
      nn::MaxPool2d(2), nn::Flatten(), nn::Linear(2 * channels * 16, 128),
      nn::ReLU(), nn::Linear(128, 10));
}

torch::Tensor loss(const torch::Tensor& labels,
                   const torch::Tensor& predictions) {
  return nn::functional::cross_entropy(predictions, labels);
}

elasticdl::OptimizerSpec optimizer() { return elasticdl::Adam(0.001); }

elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata) {
  elasticdl::ImageOptions options;
  options.shape = {1, 28, 28};
  options.mean = 0.1307;
  options.std = 0.3081;
  return elasticdl::ImageBatch(records, mode, options);
}

elasticdl::Metrics eval_metrics_fn() {
  return {{"accuracy", elasticdl::Accuracy()}};
}
