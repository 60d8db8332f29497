// CIFAR-10 with ResNet-20 (3 groups of 3 blocks; 16, 32, 64 channels), randomly
// shifted and mirrored training images, and a stepwise learning-rate schedule.
#include <elasticdl/model.h>

namespace nn = torch::nn;

struct BlockImpl : nn::Module {
  BlockImpl(int64_t in, int64_t out, int64_t stride)
      : stride_(stride),
        channels_(out - in),
        conv1(register_module("conv1", nn::Conv2d(nn::Conv2dOptions(in, out, 3)
                                                      .stride(stride)
                                                      .padding(1)
                                                      .bias(false)))),
        bn1(register_module("bn1", nn::BatchNorm2d(out))),
        conv2(register_module(
            "conv2",
            nn::Conv2d(nn::Conv2dOptions(out, out, 3).padding(1).bias(false)))),
        bn2(register_module("bn2", nn::BatchNorm2d(out))) {}

  torch::Tensor forward(torch::Tensor x) {
    const torch::Tensor y = bn2(conv2(torch::relu(bn1(conv1(x)))));
    return torch::relu(y + Shortcut(x));
  }

  // A shortcut without parameters: takes every stride-th pixel and pads the new
  // channels with 0.
  torch::Tensor Shortcut(torch::Tensor x) const {
    if (stride_ != 1) {
      x = x.slice(2, 0, c10::nullopt, stride_)
              .slice(3, 0, c10::nullopt, stride_);
    }
    if (channels_ == 0) return x;
    return torch::constant_pad_nd(
        x, {0, 0, 0, 0, channels_ / 2, channels_ - channels_ / 2});
  }

  int64_t stride_;
  int64_t channels_;
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
};
TORCH_MODULE(Block);

struct ResNet : nn::Module {
  explicit ResNet(int64_t blocks_per_group)
      : conv(register_module(
            "conv",
            nn::Conv2d(nn::Conv2dOptions(3, 16, 3).padding(1).bias(false)))),
        bn(register_module("bn", nn::BatchNorm2d(16))),
        blocks(register_module("blocks", nn::Sequential())),
        fc(register_module("fc", nn::Linear(64, 10))) {
    int64_t in = 16;
    for (const int64_t out : {16, 32, 64}) {
      for (int64_t i = 0; i < blocks_per_group; ++i) {
        blocks->push_back(Block(in, out, in == out ? 1 : 2));
        in = out;
      }
    }
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(bn(conv(x)));
    x = blocks->forward(x);
    return fc(x.mean({2, 3}));
  }

  nn::Conv2d conv;
  nn::BatchNorm2d bn;
  nn::Sequential blocks;
  nn::Linear fc;
};

// depth = 6 * blocks + 2.
std::shared_ptr<ResNet> custom_model(const elasticdl::Params& params) {
  return std::make_shared<ResNet>(params.Get("blocks", 3));
}

torch::Tensor loss(const torch::Tensor& labels,
                   const torch::Tensor& predictions) {
  return nn::functional::cross_entropy(predictions, labels);
}

elasticdl::OptimizerSpec optimizer() {
  return elasticdl::SGD(0.1, 0.9, /*nesterov=*/false, /*weight_decay=*/1e-4);
}

elasticdl::Callbacks callbacks() {
  return {std::make_shared<elasticdl::LearningRateScheduler>([](int64_t step) {
    return step < 32000 ? 0.1 : step < 48000 ? 0.01 : 0.001;
  })};
}

namespace {

// Shifts each image by up to 4 pixels in both directions and mirrors half of
// them.
torch::Tensor Augment(const torch::Tensor& images) {
  const torch::Tensor padded = torch::constant_pad_nd(images, {4, 4, 4, 4});
  const torch::Tensor random =
      torch::randint(0, 18, {images.size(0), 2}, torch::kLong);
  const auto at = random.accessor<int64_t, 2>();
  torch::Tensor out = torch::empty_like(images);
  for (int64_t i = 0; i < images.size(0); ++i) {
    torch::Tensor crop =
        padded[i].narrow(1, at[i][0] % 9, 32).narrow(2, at[i][1] % 9, 32);
    out[i].copy_(at[i][0] < 9 ? crop : crop.flip(2));
  }
  return out;
}

}  // namespace

elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata) {
  elasticdl::ImageOptions options;
  options.shape = {3, 32, 32};
  options.channels_last = true;
  options.mean = 0.4734;
  options.std = 0.2516;
  elasticdl::Batch batch = elasticdl::ImageBatch(records, mode, options);
  if (mode == elasticdl::Mode::kTraining) {
    batch.features = Augment(batch.features.tensor());
  }
  return batch;
}

elasticdl::Metrics eval_metrics_fn() {
  return {{"accuracy", elasticdl::Accuracy()}};
}
