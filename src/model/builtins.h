// Built-in losses, metrics and feeds, chosen by name: for TorchScript models,
// and for C++ model files that do not define the function.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/model.h"

namespace elasticdl::model {

using LossFunction = std::function<torch::Tensor(const torch::Tensor& labels,
                                                 const Outputs& outputs)>;
using FeedFunction =
    std::function<Batch(const Records&, Mode, const Metadata&)>;
using MetricsFunction = std::function<Metrics()>;

// The returned functions may throw. The functions below fail with NOT_FOUND for
// an unknown name (the message lists the known ones) and with INVALID_ARGUMENT
// for a wrong argument.

// cross_entropy, nll_loss, mse, mae, smooth_l1, bce, bce_with_logits; argument
// `output` selects the output if the model has several. Labels are the first
// argument, as in model files.
absl::StatusOr<LossFunction> BuiltinLoss(const std::string& text);

// A list of accuracy, binary_accuracy, auc, mse, rmse, mae, precision, recall;
// arguments output, threshold, logits, bins, where they apply.
absl::StatusOr<MetricsFunction> BuiltinMetrics(const std::string& text);
// The default metrics for a built-in loss.
std::string DefaultMetrics(const std::string& loss);

// image_classification(shape=1x28x28, image=, label=, scale=255 (divisor),
//     mean=, std=, layout=chw|hwc): tf.Example images, see ImageBatch.
// example(features=a|b, label=label): tf.Example features by name, as float32
//     or int64 tensors of the first record's width.
// csv(label=column, label_type=int|float, features=a|b, separator=,): numbers
//     of CSV records as one float tensor. Needs column names, or column numbers
//     from 0 where the file has no header. Default label: the last column;
//     default features: all others.
absl::StatusOr<FeedFunction> BuiltinFeed(const std::string& text);

}  // namespace elasticdl::model
