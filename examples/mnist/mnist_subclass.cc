// MNIST with a convolutional network written as a class, a learning-rate
// schedule, and predictions written to one file per worker.
#include <elasticdl/model.h>

#include <fstream>

namespace nn = torch::nn;

struct CustomModel : nn::Module {
  CustomModel()
      : conv1(register_module("conv1", nn::Conv2d(1, 16, 3))),
        conv2(register_module("conv2", nn::Conv2d(16, 32, 3))),
        dropout(register_module("dropout", nn::Dropout(0.25))),
        fc1(register_module("fc1", nn::Linear(32 * 5 * 5, 128))),
        fc2(register_module("fc2", nn::Linear(128, 10))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::max_pool2d(conv2(x), 2));
    x = dropout(x.flatten(1));
    return fc2(torch::relu(fc1(x)));
  }

  nn::Conv2d conv1, conv2;
  nn::Dropout dropout;
  nn::Linear fc1, fc2;
};

std::shared_ptr<CustomModel> custom_model() {
  return std::make_shared<CustomModel>();
}

torch::Tensor loss(const torch::Tensor& labels,
                   const torch::Tensor& predictions) {
  return nn::functional::cross_entropy(predictions, labels);
}

elasticdl::OptimizerSpec optimizer() { return elasticdl::SGD(0.05, 0.9); }

elasticdl::Callbacks callbacks() {
  return {std::make_shared<elasticdl::LearningRateScheduler>(
      [](int64_t step) { return step < 1000 ? 0.05 : 0.01; })};
}

elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata) {
  elasticdl::ImageOptions options;
  options.shape = {1, 28, 28};
  return elasticdl::ImageBatch(records, mode, options);
}

elasticdl::Metrics eval_metrics_fn() {
  return {{"accuracy", elasticdl::Accuracy()}, {"loss", elasticdl::Mean(loss)}};
}

// Writes one digit per line to digits-<worker>.txt in --prediction_output_dir.
struct PredictionOutputsProcessor {
  explicit PredictionOutputsProcessor(const std::string& output_dir)
      : dir(output_dir) {}

  void process(const torch::Tensor& predictions, int64_t worker_id) {
    std::ofstream out(dir + "/digits-" + std::to_string(worker_id) + ".txt",
                      std::ios::app);
    const torch::Tensor digits = predictions.argmax(1);
    for (int64_t i = 0; i < digits.size(0); ++i) {
      out << digits[i].item<int64_t>() << '\n';
    }
    if (!out.flush()) throw std::runtime_error("cannot write to " + dir);
  }

  const std::string dir;
};
