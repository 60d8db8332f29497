// Built-in losses and metrics.
#include "builtins.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/status.h"
#include "expression.h"

namespace elasticdl::model {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;

using PlainLoss = Tensor (*)(const Tensor& labels, const Tensor& predictions);

Tensor Classes(const Tensor& labels) {
  return labels.to(torch::kLong).reshape({-1});
}
Tensor Like(const Tensor& labels, const Tensor& predictions) {
  return labels.to(predictions.scalar_type()).reshape(predictions.sizes());
}

const std::map<std::string, PlainLoss>& Losses() {
  static const auto& losses = *new std::map<std::string, PlainLoss>{
      {"cross_entropy",
       [](const Tensor& y, const Tensor& p) {
         return F::cross_entropy(p, Classes(y));
       }},
      {"nll_loss", [](const Tensor& y,
                      const Tensor& p) { return F::nll_loss(p, Classes(y)); }},
      {"mse", [](const Tensor& y,
                 const Tensor& p) { return F::mse_loss(p, Like(y, p)); }},
      {"mae", [](const Tensor& y,
                 const Tensor& p) { return F::l1_loss(p, Like(y, p)); }},
      {"smooth_l1",
       [](const Tensor& y, const Tensor& p) {
         return F::smooth_l1_loss(p, Like(y, p));
       }},
      {"bce",
       [](const Tensor& y, const Tensor& p) {
         return F::binary_cross_entropy(p, Like(y, p));
       }},
      {"bce_with_logits",
       [](const Tensor& y, const Tensor& p) {
         return F::binary_cross_entropy_with_logits(p, Like(y, p));
       }},
  };
  return losses;
}

// Names that Keras and torch use for the same function.
std::string CanonicalLoss(const std::string& name) {
  static const auto& aliases = *new std::map<std::string, std::string>{
      {"sparse_categorical_crossentropy", "cross_entropy"},
      {"nll", "nll_loss"},
      {"mse_loss", "mse"},
      {"mean_squared_error", "mse"},
      {"l1_loss", "mae"},
      {"l1", "mae"},
      {"mean_absolute_error", "mae"},
      {"smooth_l1_loss", "smooth_l1"},
      {"huber", "smooth_l1"},
      {"binary_cross_entropy", "bce"},
      {"binary_crossentropy", "bce"},
      {"binary_cross_entropy_with_logits", "bce_with_logits"},
  };
  const auto it = aliases.find(name);
  return it == aliases.end() ? name : it->second;
}

template <typename Map>
std::string KeysOf(const Map& map) {
  return absl::StrJoin(map, ", ", [](std::string* out, const auto& entry) {
    out->append(entry.first);
  });
}

struct MetricArgs {
  std::string output;
  double threshold;
  bool logits;
  int64_t bins;
};

struct MetricEntry {
  std::set<std::string> args;
  std::shared_ptr<Metric> (*make)(const MetricArgs& args);
};

const std::map<std::string, MetricEntry>& MetricTable() {
  using A = const MetricArgs&;
  static const auto& table = *new std::map<std::string, MetricEntry>{
      {"accuracy", {{"output"}, [](A a) { return Accuracy(a.output); }}},
      {"binary_accuracy",
       {{"output", "threshold"},
        [](A a) { return BinaryAccuracy(a.threshold, a.output); }}},
      {"auc",
       {{"output", "logits", "bins"},
        [](A a) { return Auc(a.logits, a.output, a.bins); }}},
      {"mse", {{"output"}, [](A a) { return MeanSquaredError(a.output); }}},
      {"rmse",
       {{"output"}, [](A a) { return RootMeanSquaredError(a.output); }}},
      {"mae", {{"output"}, [](A a) { return MeanAbsoluteError(a.output); }}},
      {"precision",
       {{"output", "threshold"},
        [](A a) { return Precision(a.threshold, a.output); }}},
      {"recall",
       {{"output", "threshold"},
        [](A a) { return Recall(a.threshold, a.output); }}},
  };
  return table;
}

struct NamedMetric {
  std::string name;
  MetricArgs args;
};

absl::StatusOr<NamedMetric> ParseMetric(const std::string& text) {
  ELASTICDL_ASSIGN_OR_RETURN(const Expression e, ParseExpression(text));
  const auto it = MetricTable().find(e.name);
  if (it == MetricTable().end()) {
    return absl::NotFoundError(
        absl::StrCat("there is no built-in metric '", e.name,
                     "'; known: ", KeysOf(MetricTable())));
  }
  ELASTICDL_RETURN_IF_ERROR(e.CheckArgs(it->second.args));
  NamedMetric metric;
  metric.name = e.name;
  metric.args.output = e.Get("output", "");
  ELASTICDL_ASSIGN_OR_RETURN(metric.args.threshold, e.Number("threshold", 0.5));
  ELASTICDL_ASSIGN_OR_RETURN(const double logits, e.Number("logits", 0));
  metric.args.logits = logits != 0;
  ELASTICDL_ASSIGN_OR_RETURN(const double bins, e.Number("bins", 1000));
  metric.args.bins = static_cast<int64_t>(bins);
  return metric;
}

}  // namespace

absl::StatusOr<LossFunction> BuiltinLoss(const std::string& text) {
  ELASTICDL_ASSIGN_OR_RETURN(const Expression e, ParseExpression(text));
  const auto it = Losses().find(CanonicalLoss(e.name));
  if (it == Losses().end()) {
    return absl::NotFoundError(absl::StrCat(
        "there is no built-in loss '", e.name, "'; known: ", KeysOf(Losses())));
  }
  ELASTICDL_RETURN_IF_ERROR(e.CheckArgs({"output"}));
  return LossFunction([plain = it->second, output = e.Get("output", "")](
                          const Tensor& labels, const Outputs& outputs) {
    return plain(labels,
                 output.empty() ? outputs.tensor() : outputs.at(output));
  });
}

absl::StatusOr<MetricsFunction> BuiltinMetrics(const std::string& text) {
  std::vector<NamedMetric> wanted;
  for (const std::string& part : SplitList(text)) {
    ELASTICDL_ASSIGN_OR_RETURN(NamedMetric metric, ParseMetric(part));
    wanted.push_back(std::move(metric));
  }
  return MetricsFunction([wanted = std::move(wanted)] {
    Metrics metrics;
    for (const NamedMetric& metric : wanted) {
      metrics.emplace_back(metric.name,
                           MetricTable().at(metric.name).make(metric.args));
    }
    return metrics;
  });
}

std::string DefaultMetrics(const std::string& loss) {
  const std::string name = CanonicalLoss(loss.substr(0, loss.find('(')));
  if (name == "cross_entropy" || name == "nll_loss") return "accuracy";
  if (name == "bce") return "binary_accuracy,auc";
  if (name == "bce_with_logits") {
    return "binary_accuracy(threshold=0),auc(logits=1)";
  }
  return "mse,mae";
}

}  // namespace elasticdl::model
