// The common part of all kinds of models: calls the functions of a definition
// and turns their exceptions into statuses.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "builtins.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/model/plugin.h"

namespace elasticdl::model {

// The functions of a definition. Each may throw. Required unless noted.
struct Functions {
  LossFunction loss;
  std::function<OptimizerSpec()> optimizer;
  FeedFunction feed;
  // Empty if the model has none; `missing_metrics` then says why.
  MetricsFunction metrics;
  std::string missing_metrics;
  // Empty: none.
  std::function<Callbacks()> callbacks;
};

// "a model's file: function 'f' (--flag) failed: why" as INTERNAL.
absl::Status FunctionError(const std::string& path, const std::string& function,
                           const std::string& why);

// Calls f(). Exceptions become INTERNAL; the message names `function` and
// `path`.
template <typename F>
absl::Status CallUser(const std::string& path, const std::string& function,
                      const F& f) {
  std::string error;
  if (plugin::Guard(&error, f)) return absl::OkStatus();
  return FunctionError(path, function, error);
}

// Thread-safe if the functions are.
class ModelBase : public Model {
 public:
  ModelBase(std::string path, const LoadOptions& options)
      : path_(std::move(path)), names_(options) {}

  absl::StatusOr<torch::Tensor> Loss(const torch::Tensor& labels,
                                     const Outputs& outputs) override;
  absl::StatusOr<OptimizerSpec> Optimizer() override;
  absl::StatusOr<Batch> Feed(Records records, Mode mode,
                             const Metadata& metadata) override;
  absl::StatusOr<MetricSet> CreateMetrics() override;
  absl::StatusOr<CallbackSet> CreateCallbacks() override;

 protected:
  const std::string& path() const { return path_; }
  const LoadOptions& names() const { return names_; }
  void set_functions(Functions functions) { functions_ = std::move(functions); }

 private:
  absl::StatusOr<Batch> FeedOnce(Records records, Mode mode,
                                 const Metadata& metadata);
  absl::Status CheckBatch(const Batch& batch, size_t num_records,
                          Mode mode) const;
  // The error for a minibatch whose feed failed with `whole`.
  absl::Status BlameRecord(Records records, Mode mode, const Metadata& metadata,
                           const absl::Status& whole);

  // Constant after construction, for messages.
  const std::string path_;
  const LoadOptions names_;
  // Constant after set_functions.
  Functions functions_;
};

}  // namespace elasticdl::model
