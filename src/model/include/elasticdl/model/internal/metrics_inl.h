// Inline parts of elasticdl/model/metrics.h, because model files do not link
// our libraries.
#pragma once

#include <algorithm>

#include "elasticdl/model/metrics.h"

namespace elasticdl {
namespace internal {

// The output called `name`; "" means the only one.
inline const torch::Tensor& Pick(const Outputs& outputs,
                                 const std::string& name) {
  return name.empty() ? outputs.tensor() : outputs.at(name);
}

// sums[0] += numerator, sums[1] += denominator.
using RatioFunction = std::function<std::pair<double, double>(
    const torch::Tensor& labels, const torch::Tensor& predictions)>;

class RatioMetric : public Metric {
 public:
  RatioMetric(absl::string_view kind, std::string output, RatioFunction fn)
      : Metric(kind, 2), output_(std::move(output)), fn_(std::move(fn)) {}
  void Update(const torch::Tensor& labels, const Outputs& outputs) override {
    const auto [numerator, denominator] = fn_(labels, Pick(outputs, output_));
    mutable_sums()[0] += numerator;
    mutable_sums()[1] += denominator;
  }

 private:
  const std::string output_;
  const RatioFunction fn_;
};

class AucMetric : public Metric {
 public:
  AucMetric(bool logits, std::string output, int64_t bins)
      : Metric(metric::kAuc,
               2 * static_cast<size_t>(std::max<int64_t>(bins, 1))),
        logits_(logits),
        output_(std::move(output)),
        bins_(std::max<int64_t>(bins, 1)) {}
  void Update(const torch::Tensor& labels, const Outputs& outputs) override {
    torch::Tensor p = Pick(outputs, output_).detach().to(torch::kDouble);
    if (logits_) p = p.sigmoid();
    p = p.reshape({-1}).contiguous();
    const torch::Tensor y =
        labels.to(torch::kDouble).reshape({-1}).contiguous();
    if (p.size(0) != y.size(0)) {
      throw std::invalid_argument("Auc: labels and predictions differ in size");
    }
    const double* probability = p.data_ptr<double>();
    const double* label = y.data_ptr<double>();
    for (int64_t i = 0; i < p.size(0); ++i) {
      const double scaled = probability[i] * static_cast<double>(bins_);
      // NaN fails both comparisons and ends up in bin 0.
      int64_t bin = scaled > 0 ? static_cast<int64_t>(std::min(
                                     scaled, static_cast<double>(bins_ - 1)))
                               : 0;
      if (label[i] <= 0.5) bin += bins_;
      mutable_sums()[static_cast<size_t>(bin)] += 1;
    }
  }

 private:
  const bool logits_;
  const std::string output_;
  const int64_t bins_;
};

inline double Count(const torch::Tensor& condition) {
  return static_cast<double>(condition.sum().item<int64_t>());
}

// Labels in the shape of the predictions.
inline torch::Tensor Like(const torch::Tensor& labels,
                          const torch::Tensor& predictions) {
  return labels.to(predictions.scalar_type()).reshape(predictions.sizes());
}

inline std::shared_ptr<Metric> Ratio(std::string output, RatioFunction fn,
                                     absl::string_view kind = metric::kMean) {
  return std::make_shared<RatioMetric>(kind, std::move(output), std::move(fn));
}

inline RatioFunction MeanOf(MetricFunction fn) {
  return [fn = std::move(fn)](const torch::Tensor& labels,
                              const torch::Tensor& predictions) {
    const torch::Tensor values = fn(labels, predictions);
    const double sum = values.to(torch::kDouble).sum().item<double>();
    // A loss is a mean already. Minibatches differ in size, the last ones of
    // tasks above all, so it counts once for each record.
    if (values.dim() == 0 && labels.dim() > 0) {
      const auto records = static_cast<double>(labels.size(0));
      return std::make_pair(sum * records, records);
    }
    return std::make_pair(sum, static_cast<double>(values.numel()));
  };
}

inline torch::Tensor SquaredError(const torch::Tensor& labels,
                                  const torch::Tensor& predictions) {
  return (predictions - Like(labels, predictions)).square();
}

}  // namespace internal

inline std::shared_ptr<Metric> Mean(MetricFunction fn, std::string output) {
  return internal::Ratio(std::move(output), internal::MeanOf(std::move(fn)));
}

inline std::shared_ptr<Metric> Accuracy(std::string output) {
  return internal::Ratio(
      std::move(output), [](const torch::Tensor& y, const torch::Tensor& p) {
        const torch::Tensor hit =
            p.argmax(-1).reshape({-1}).eq(y.to(torch::kLong).reshape({-1}));
        return std::make_pair(internal::Count(hit),
                              static_cast<double>(hit.numel()));
      });
}

inline std::shared_ptr<Metric> BinaryAccuracy(double threshold,
                                              std::string output) {
  return internal::Ratio(std::move(output), [threshold](const auto& y,
                                                        const auto& p) {
    const torch::Tensor hit = p.gt(threshold).eq(internal::Like(y, p).gt(0.5));
    return std::make_pair(internal::Count(hit),
                          static_cast<double>(hit.numel()));
  });
}

inline std::shared_ptr<Metric> Auc(bool logits, std::string output,
                                   int64_t bins) {
  return std::make_shared<internal::AucMetric>(logits, std::move(output), bins);
}

inline std::shared_ptr<Metric> MeanSquaredError(std::string output) {
  return Mean(internal::SquaredError, std::move(output));
}

inline std::shared_ptr<Metric> RootMeanSquaredError(std::string output) {
  return internal::Ratio(std::move(output),
                         internal::MeanOf(internal::SquaredError),
                         metric::kSqrtMean);
}

inline std::shared_ptr<Metric> MeanAbsoluteError(std::string output) {
  return Mean(
      [](const torch::Tensor& y, const torch::Tensor& p) {
        return (p - internal::Like(y, p)).abs();
      },
      std::move(output));
}

inline std::shared_ptr<Metric> Precision(double threshold, std::string output) {
  return internal::Ratio(std::move(output), [threshold](const auto& y,
                                                        const auto& p) {
    const torch::Tensor chosen = p.gt(threshold);
    const torch::Tensor hit = chosen.logical_and(internal::Like(y, p).gt(0.5));
    return std::make_pair(internal::Count(hit), internal::Count(chosen));
  });
}

inline std::shared_ptr<Metric> Recall(double threshold, std::string output) {
  return internal::Ratio(
      std::move(output), [threshold](const auto& y, const auto& p) {
        const torch::Tensor positive = internal::Like(y, p).gt(0.5);
        return std::make_pair(
            internal::Count(p.gt(threshold).logical_and(positive)),
            internal::Count(positive));
      });
}

}  // namespace elasticdl
