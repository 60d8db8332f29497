// What model functions take and return: records in, tensors out.
#pragma once

#include <torch/types.h>

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "elasticdl/data/reader.h"

namespace elasticdl {

enum class Mode { kTraining, kEvaluation, kPrediction };

// A minibatch of raw records; valid only during the call.
using Records = absl::Span<const absl::string_view>;
using Metadata = data::Metadata;

// One tensor, or an ordered list of named tensors. Converts from and to a
// tensor, so that models with one input or output need not use it.
// Thread-compatible. Accessors throw std::out_of_range, because they are called
// from model files.
class NamedTensors {
 public:
  using Item = std::pair<std::string, torch::Tensor>;

  NamedTensors() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): see the class comment.
  NamedTensors(torch::Tensor tensor) {
    items_.emplace_back("", std::move(tensor));
  }
  NamedTensors(std::initializer_list<Item> items) : items_(items) {}
  explicit NamedTensors(std::vector<Item> items) : items_(std::move(items)) {}

  const std::vector<Item>& items() const { return items_; }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  bool Has(const std::string& name) const { return Find(name) != nullptr; }

  void Add(std::string name, torch::Tensor tensor) {
    items_.emplace_back(std::move(name), std::move(tensor));
  }

  // The tensor called `name`.
  const torch::Tensor& at(const std::string& name) const {
    const torch::Tensor* tensor = Find(name);
    if (tensor == nullptr) {
      throw std::out_of_range("no tensor '" + name + "' among " + Names());
    }
    return *tensor;
  }
  const torch::Tensor& operator[](const std::string& name) const {
    return at(name);
  }
  // The only tensor.
  const torch::Tensor& tensor() const {
    if (items_.size() == 1) return items_[0].second;
    throw std::out_of_range("expected one tensor, but there are " +
                            std::to_string(items_.size()) + ": " + Names());
  }
  // NOLINTNEXTLINE(google-explicit-constructor): see the class comment.
  operator const torch::Tensor&() const { return tensor(); }

  // Number of rows in the batch: the first dimension of the first tensor.
  int64_t rows() const {
    return items_.empty() || items_[0].second.dim() == 0
               ? 0
               : items_[0].second.size(0);
  }

 private:
  const torch::Tensor* Find(const std::string& name) const {
    for (const Item& item : items_) {
      if (item.first == name) return &item.second;
    }
    return nullptr;
  }
  std::string Names() const {
    std::string names;
    for (const Item& item : items_) {
      names += (names.empty() ? "'" : ", '") + item.first + "'";
    }
    return "{" + names + "}";
  }

  std::vector<Item> items_;
};

using Features = NamedTensors;
using Outputs = NamedTensors;

// A decoded minibatch. `labels` is undefined in prediction.
struct Batch {
  Features features;
  torch::Tensor labels;
};

}  // namespace elasticdl
