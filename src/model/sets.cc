// MetricSet, CallbackSet, export.
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/model/plugin.h"

namespace elasticdl::model {
namespace {

// Calls f() for each callback; exceptions become INTERNAL.
template <typename F>
absl::Status ForEach(const Callbacks& callbacks, const char* hook, const F& f) {
  for (const auto& callback : callbacks) {
    std::string error;
    if (!plugin::Guard(&error, [&] { f(*callback); })) {
      return absl::InternalError(
          absl::StrCat("callback's ", hook, " failed: ", error));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> SerializeTensors(const Network::Tensors& tensors) {
  std::string out;
  std::string error;
  const bool ok = plugin::Guard(&error, [&] {
    c10::Dict<std::string, torch::Tensor> dict;
    for (const auto& [name, tensor] : tensors) {
      // Copy it: the parameter may be a view of a larger buffer, and torch
      // would write the whole storage.
      dict.insert(name, tensor.detach().clone());
    }
    const std::vector<char> bytes = torch::pickle_save(dict);
    out.assign(bytes.begin(), bytes.end());
  });
  if (!ok) return absl::InternalError(absl::StrCat("state_dict: ", error));
  return out;
}

}  // namespace

absl::Status MetricSet::Update(const torch::Tensor& labels,
                               const Outputs& outputs) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, metric] : metrics_) {
    std::string error;
    if (!plugin::Guard(&error, [&, &metric = metric] {
          metric->Update(labels, outputs);
        })) {
      return absl::InternalError(
          absl::StrCat("metric '", name, "' failed: ", error));
    }
  }
  return absl::OkStatus();
}

std::vector<MetricSums> MetricSet::Take() {
  std::vector<MetricSums> sums;
  sums.reserve(metrics_.size());
  for (const auto& [name, metric] : metrics_) {
    sums.push_back({name, metric->kind(), metric->sums()});
    metric->Reset();
  }
  return sums;
}

absl::Status CallbackSet::OnTrainBatchBegin(int64_t step) {
  return ForEach(callbacks_, "on_train_batch_begin", [&](Callback& callback) {
    callback.on_train_batch_begin(step);
  });
}

absl::Status CallbackSet::OnEvaluationEnd(
    int64_t step, const std::map<std::string, double>& metrics) {
  return ForEach(callbacks_, "on_evaluation_end", [&](Callback& callback) {
    callback.on_evaluation_end(step, metrics);
  });
}

absl::Status CallbackSet::OnTrainEnd() {
  return ForEach(callbacks_, "on_train_end",
                 [](Callback& callback) { callback.on_train_end(); });
}

std::optional<double> CallbackSet::learning_rate() const {
  std::optional<double> rate;
  for (const auto& callback : callbacks_) {
    if (callback->learning_rate()) rate = callback->learning_rate();
  }
  return rate;
}

std::optional<std::string> CallbackSet::stop_reason() const {
  for (const auto& callback : callbacks_) {
    if (callback->stop_requested()) return callback->stop_reason();
  }
  return std::nullopt;
}

absl::Status ExportTo(const std::string& dir, const Network& network) {
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(dir));
  ELASTICDL_ASSIGN_OR_RETURN(const std::string module, network.Serialize());
  ELASTICDL_RETURN_IF_ERROR(WriteFileAtomic(JoinPath(dir, "model.pt"), module));
  Network::Tensors state = network.parameters();
  state.insert(state.end(), network.buffers().begin(), network.buffers().end());
  // Python's load_state_dict wants all of them.
  for (auto& other : network.OtherNames()) state.push_back(std::move(other));
  return ExportTensors(JoinPath(dir, "state_dict.pt"), state);
}

absl::Status ExportTensors(const std::string& path,
                           const Network::Tensors& tensors) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string bytes,
                             SerializeTensors(tensors));
  return WriteFileAtomic(path, bytes);
}

}  // namespace elasticdl::model
