// Optimizers over flat float arrays, without libtorch. Workers apply them to
// their flat parameters, parameter servers to their values and rows. A spec is
// declarative, so that a model file can describe an optimizer that runs
// elsewhere.
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
#include "absl/types/span.h"

namespace elasticdl::optim {

// An optimizer by name and arguments, e.g. SGD(lr=0.1,momentum=0.9).
// Optimizers: SGD Adam AdamW Adagrad RMSprop Adadelta Adamax Nadam Ftrl. Names
// and arguments are those of Keras and torch.optim, in any case; `lr` and
// `learning_rate`, `beta_1` and `beta1`, `eps` and `epsilon` … mean the same.
// Booleans are 0 and 1. An argument that is not given has torch.optim's default
// (Keras' for Ftrl, which torch does not have); see the table in
// src/optim/spec.cc.
struct OptimizerSpec {
  std::string type;
  std::map<std::string, double> args;

  // "SGD(lr=0.1,momentum=0.9)" or "SGD"; arguments are separated by `,` or `;`,
  // True and False are 1 and 0. The result is canonical. INVALID_ARGUMENT names
  // an unknown optimizer or argument and the nearest known one, or the argument
  // whose value is out of its range.
  static absl::StatusOr<OptimizerSpec> Parse(absl::string_view text);
  // The same optimizer with the names of the table (`lr`, `beta1`, …). Same
  // errors as Parse.
  absl::StatusOr<OptimizerSpec> Canonical() const;
  // Parse(ToString()) gives the same spec if it is canonical.
  std::string ToString() const;

  friend bool operator==(const OptimizerSpec& a, const OptimizerSpec& b) {
    return a.type == b.type && a.args == b.args;
  }
};

// Shorthands for model files. Create the others with Parse or by setting the
// fields: OptimizerSpec{"Ftrl", {{"lr", 0.1}}}.
OptimizerSpec Sgd(double lr, double momentum = 0.0, bool nesterov = false,
                  double weight_decay = 0.0);
OptimizerSpec Adam(double lr = 0.001, double beta1 = 0.9, double beta2 = 0.999,
                   double epsilon = 1e-8, bool amsgrad = false);
OptimizerSpec AdamW(double lr = 0.001, double weight_decay = 0.01);
OptimizerSpec Adagrad(double lr = 0.01, double epsilon = 1e-7);
OptimizerSpec RmsProp(double lr = 0.01, double alpha = 0.99,
                      double epsilon = 1e-8, double momentum = 0.0);

class Formulas;

// An array to update, with its gradient and its slots; all have n elements.
struct Update {
  float* param;
  const float* grad;
  float* const* slots;
  size_t n;
};

// The arithmetic of one optimizer. Thread-safe: it has only constants; the
// state is in the caller's slots.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Same errors as OptimizerSpec::Parse.
  static absl::StatusOr<std::unique_ptr<Optimizer>> Create(
      const OptimizerSpec& spec);

  // Names of the per-parameter state arrays, in the order Apply takes them
  // (SGD with momentum: {"momentum"}; Adam: {"m", "v"} …).
  virtual const std::vector<std::string>& slot_names() const = 0;
  // The value of a slot's elements before the first Apply (0 for most slots).
  virtual float initial_slot_value(size_t slot) const = 0;
  // The spec's lr, used unless a schedule sets another one.
  virtual double learning_rate() const = 0;

  // One update of param[0..n) by grad[0..n). slots[i] has n elements. `step`
  // counts from 1 (Adam's bias correction). Arrays may be unaligned, and must
  // not overlap. One pass over memory, on the calling thread; several threads
  // may update disjoint parts of a parameter.
  virtual void Apply(float* param, const float* grad, float* const* slots,
                     size_t n, double lr, int64_t step) const = 0;
  // The same for many arrays in one step, e.g. rows of an embedding.
  virtual void ApplyAll(absl::Span<const Update> updates, double lr,
                        int64_t step) const = 0;
  // Gives `formulas` the constants of a step, for one call at most: none when
  // the step changes nothing.
  virtual void Visit(Formulas& formulas, double lr, int64_t step) const = 0;
};

}  // namespace elasticdl::optim
