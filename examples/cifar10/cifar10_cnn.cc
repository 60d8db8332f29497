// CIFAR-10 with a small convolutional network.
#include <elasticdl/model.h>

namespace nn = torch::nn;

namespace {

nn::Conv2d Conv(int64_t in, int64_t out) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(false));
}

}  // namespace

nn::Sequential custom_model() {
  return nn::Sequential(
      Conv(3, 32), nn::BatchNorm2d(32), nn::ReLU(), Conv(32, 32),
      nn::BatchNorm2d(32), nn::ReLU(), nn::MaxPool2d(2), Conv(32, 64),
      nn::BatchNorm2d(64), nn::ReLU(), Conv(64, 64), nn::BatchNorm2d(64),
      nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Dropout(0.3),
      nn::Linear(64 * 8 * 8, 128), nn::ReLU(), nn::Linear(128, 10));
}

torch::Tensor loss(const torch::Tensor& labels,
                   const torch::Tensor& predictions) {
  return nn::functional::cross_entropy(predictions, labels);
}

elasticdl::OptimizerSpec optimizer() { return elasticdl::Adam(0.001); }

elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata) {
  elasticdl::ImageOptions options;
  options.shape = {3, 32, 32};
  options.channels_last = true;
  options.mean = 0.4734;
  options.std = 0.2516;
  return elasticdl::ImageBatch(records, mode, options);
}

elasticdl::Metrics eval_metrics_fn() {
  return {{"accuracy", elasticdl::Accuracy()}};
}
