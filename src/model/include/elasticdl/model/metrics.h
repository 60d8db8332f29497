// Metrics for eval_metrics_fn. A metric adds up sums over batches (kinds in
// elasticdl/metric.h); the master computes the value from all workers' sums.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/metric.h"
#include "elasticdl/model/types.h"

namespace elasticdl {

// Thread-compatible. Subclass it for other sums of a known kind.
class Metric {
 public:
  // `size` sums of 0.
  Metric(absl::string_view kind, size_t size)
      : kind_(kind.data(), kind.size()), sums_(size) {}
  virtual ~Metric() = default;

  // Adds a batch. May throw, which fails the evaluation.
  virtual void Update(const torch::Tensor& labels, const Outputs& outputs) = 0;

  const std::string& kind() const { return kind_; }
  const std::vector<double>& sums() const { return sums_; }
  void Reset() { std::fill(sums_.begin(), sums_.end(), 0.0); }

 protected:
  std::vector<double>& mutable_sums() { return sums_; }

 private:
  const std::string kind_;
  std::vector<double> sums_;
};

// Name -> metric, in the order of the output.
using Metrics = std::vector<std::pair<std::string, std::shared_ptr<Metric>>>;

// Computes a tensor from labels and outputs; all its elements are averaged. A
// scalar is the mean of the minibatch (as a loss is) and is weighted by
// records.
using MetricFunction = std::function<torch::Tensor(
    const torch::Tensor& labels, const torch::Tensor& predictions)>;

// Each function below takes the name of the output to use; "" means the only
// one.

// Mean over all elements that `fn` returns, or over all records if it returns
// the mean of a minibatch.
std::shared_ptr<Metric> Mean(MetricFunction fn, std::string output = "");
// Fraction of rows whose largest output is at the label's index.
std::shared_ptr<Metric> Accuracy(std::string output = "");
// Fraction of outputs on the label's side of `threshold` (use 0 for logits).
std::shared_ptr<Metric> BinaryAccuracy(double threshold = 0.5,
                                       std::string output = "");
// Area under the ROC curve. Outputs are probabilities, or logits with `logits`.
std::shared_ptr<Metric> Auc(bool logits = false, std::string output = "",
                            int64_t bins = 1000);
std::shared_ptr<Metric> MeanSquaredError(std::string output = "");
std::shared_ptr<Metric> RootMeanSquaredError(std::string output = "");
std::shared_ptr<Metric> MeanAbsoluteError(std::string output = "");
std::shared_ptr<Metric> Precision(double threshold = 0.5,
                                  std::string output = "");
std::shared_ptr<Metric> Recall(double threshold = 0.5, std::string output = "");

}  // namespace elasticdl

#include "elasticdl/model/internal/metrics_inl.h"
