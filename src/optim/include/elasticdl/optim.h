// Optimizers over flat float arrays, without libtorch: the worker applies them
// to its flat parameter buffer, the parameter server to its shards. A spec is
// declarative, so that a model file can name an optimizer that runs elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::optim {

// An optimizer by name and arguments, e.g. SGD(lr=0.1,momentum=0.9).
// Names and arguments are those of Keras and torch.optim; `lr` and
// `learning_rate` mean the same. Booleans are 0 and 1.
struct OptimizerSpec {
  std::string type;
  std::map<std::string, double> args;

  // "SGD(lr=0.1,momentum=0.9)" or "SGD". INVALID_ARGUMENT names an unknown
  // optimizer or argument and the nearest known one.
  static absl::StatusOr<OptimizerSpec> Parse(absl::string_view text);
  // Canonical form; Parse(ToString()) gives the same spec.
  std::string ToString() const;
};

// Makers for model files.
OptimizerSpec Sgd(double lr, double momentum = 0.0, bool nesterov = false,
                  double weight_decay = 0.0);
OptimizerSpec Adam(double lr = 0.001, double beta1 = 0.9, double beta2 = 0.999,
                   double epsilon = 1e-8, bool amsgrad = false);
OptimizerSpec AdamW(double lr = 0.001, double weight_decay = 0.01);
OptimizerSpec Adagrad(double lr = 0.01, double epsilon = 1e-7);

// The arithmetic of one optimizer. Thread-safe (holds constants only): state is
// in the caller's slots.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  static absl::StatusOr<std::unique_ptr<Optimizer>> Create(
      const OptimizerSpec& spec);

  // Names of the per-parameter state arrays, in the order Apply takes them
  // (SGD with momentum: {"momentum"}; Adam: {"m", "v"} …).
  virtual const std::vector<std::string>& slot_names() const = 0;
  // What a slot's elements are before the first Apply (0 for most).
  virtual float initial_slot_value(size_t slot) const = 0;
  // lr of the spec, used unless a schedule sets another.
  virtual double learning_rate() const = 0;

  // One update of param[0..n) by grad[0..n). slots[i] has n elements. `step`
  // counts from 1 (Adam's bias correction). Arrays may be unaligned.
  virtual void Apply(float* param, const float* grad, float* const* slots,
                     size_t n, double lr, int64_t step) const = 0;
};

}  // namespace elasticdl::optim
