// The optimizers: each computes the constants of a step and calls a kernel.
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/common/check.h"
#include "elasticdl/common/status.h"
#include "elasticdl/optim.h"
#include "elasticdl/optim_formulas.h"
#include "kernels.h"
#include "spec.h"

namespace elasticdl::optim {
namespace {

using internal::Arrays;
using Updates = absl::Span<const Update>;
using Args = std::map<std::string, double>;

float F(double value) { return static_cast<float>(value); }

// The formulas over arrays on the CPU. The constants of a step are computed
// once for all arrays.
class Pass : public Formulas {
 public:
  explicit Pass(Updates updates) : updates_(updates) {}
  void Sgd(const SgdConstants& c) override { Each(internal::ApplySgd, c); }
  void Adam(const AdamConstants& c) override { Each(internal::ApplyAdam, c); }
  void Adagrad(const AdagradConstants& c) override {
    Each(internal::ApplyAdagrad, c);
  }
  void RmsProp(const RmsPropConstants& c) override {
    Each(internal::ApplyRmsProp, c);
  }
  void Adadelta(const AdadeltaConstants& c) override {
    Each(internal::ApplyAdadelta, c);
  }
  void Adamax(const AdamaxConstants& c) override {
    Each(internal::ApplyAdamax, c);
  }
  void Nadam(const NadamConstants& c) override {
    Each(internal::ApplyNadam, c);
  }
  void Ftrl(const FtrlConstants& c) override {
    Each(c.power == 0.5F ? internal::ApplyFtrl : internal::ApplyFtrlAnyPower,
         c);
  }

 private:
  template <typename Constants>
  void Each(void (*kernel)(const Constants&, const Arrays&),
            const Constants& constants) {
    for (const Update& update : updates_) kernel(constants, update);
  }

  const Updates updates_;
};

// Slots and learning rate. Everything else is specific to the optimizer's Run.
class Base : public Optimizer {
 public:
  const std::vector<std::string>& slot_names() const override {
    return slot_names_;
  }
  float initial_slot_value(size_t slot) const override {
    ELASTICDL_CHECK(slot < initial_values_.size());
    return initial_values_[slot];
  }
  double learning_rate() const override { return lr_; }

  void Apply(float* param, const float* grad, float* const* slots, size_t n,
             double lr, int64_t step) const override {
    const Update update{param, grad, slots, n};
    ApplyAll(absl::MakeConstSpan(&update, 1), lr, step);
  }
  void ApplyAll(Updates updates, double lr, int64_t step) const override {
    Pass pass(updates);
    Visit(pass, lr, step);
  }
  void Visit(Formulas& formulas, double lr, int64_t step) const override {
    ELASTICDL_CHECK(step >= 1);
    Run(formulas, lr, step);
  }

 protected:
  explicit Base(const Args& args) : lr_(args.at("lr")) {}
  void AddSlot(const char* name, double initial_value = 0.0) {
    slot_names_.push_back(name);
    initial_values_.push_back(F(initial_value));
  }

 private:
  virtual void Run(Formulas& formulas, double lr, int64_t step) const = 0;

  const double lr_;
  std::vector<std::string> slot_names_;
  std::vector<float> initial_values_;
};

class SgdOptimizer : public Base {
 public:
  explicit SgdOptimizer(const Args& args)
      : Base(args),
        momentum_(args.at("momentum")),
        dampening_(args.at("dampening")),
        weight_decay_(args.at("weight_decay")),
        nesterov_(args.at("nesterov") != 0) {
    if (momentum_ != 0) AddSlot("momentum");
  }

 private:
  void Run(Formulas& formulas, double lr, int64_t step) const override {
    // torch initializes its buffer with the first gradient, without dampening.
    const double grad_scale = step == 1 ? 1.0 : 1.0 - dampening_;
    formulas.Sgd({F(lr), F(momentum_), F(grad_scale), F(weight_decay_),
                  momentum_ != 0, nesterov_});
  }

  const double momentum_;
  const double dampening_;
  const double weight_decay_;
  const bool nesterov_;
};

// Adam, and AdamW (whose weight decay does not affect the moments).
class AdamOptimizer : public Base {
 public:
  AdamOptimizer(const Args& args, bool decoupled)
      : Base(args),
        beta1_(args.at("beta1")),
        beta2_(args.at("beta2")),
        epsilon_(args.at("epsilon")),
        weight_decay_(args.at("weight_decay")),
        amsgrad_(args.at("amsgrad") != 0),
        decoupled_(decoupled) {
    AddSlot("m");
    AddSlot("v");
    if (amsgrad_) AddSlot("vhat");
  }

 private:
  void Run(Formulas& formulas, double lr, int64_t step) const override {
    const double t = static_cast<double>(step);
    AdamConstants c;
    c.step_size = F(lr / (1 - std::pow(beta1_, t)));
    c.scale = F(1 / std::sqrt(1 - std::pow(beta2_, t)));
    c.beta1 = F(beta1_);
    c.one_minus_beta1 = F(1 - beta1_);
    c.beta2 = F(beta2_);
    c.one_minus_beta2 = F(1 - beta2_);
    c.epsilon = F(epsilon_);
    c.weight_decay = decoupled_ ? 0.0f : F(weight_decay_);
    c.decay = decoupled_ ? F(1 - lr * weight_decay_) : 1.0f;
    c.amsgrad = amsgrad_;
    formulas.Adam(c);
  }

  const double beta1_;
  const double beta2_;
  const double epsilon_;
  const double weight_decay_;
  const bool amsgrad_;
  const bool decoupled_;
};

class AdagradOptimizer : public Base {
 public:
  explicit AdagradOptimizer(const Args& args)
      : Base(args),
        lr_decay_(args.at("lr_decay")),
        epsilon_(args.at("epsilon")),
        weight_decay_(args.at("weight_decay")) {
    AddSlot("accumulator", args.at("initial_accumulator_value"));
  }

 private:
  void Run(Formulas& formulas, double lr, int64_t step) const override {
    const double decayed = lr / (1 + static_cast<double>(step - 1) * lr_decay_);
    formulas.Adagrad({F(decayed), F(epsilon_), F(weight_decay_)});
  }

  const double lr_decay_;
  const double epsilon_;
  const double weight_decay_;
};

class RmsPropOptimizer : public Base {
 public:
  explicit RmsPropOptimizer(const Args& args)
      : Base(args),
        alpha_(args.at("alpha")),
        epsilon_(args.at("epsilon")),
        momentum_(args.at("momentum")),
        weight_decay_(args.at("weight_decay")),
        centered_(args.at("centered") != 0) {
    AddSlot("rms");
    if (centered_) AddSlot("mg");
    if (momentum_ != 0) AddSlot("momentum");
  }

 private:
  void Run(Formulas& formulas, double lr, int64_t) const override {
    formulas.RmsProp({F(lr), F(alpha_), F(1 - alpha_), F(epsilon_),
                      F(momentum_), F(weight_decay_), centered_,
                      momentum_ != 0});
  }

  const double alpha_;
  const double epsilon_;
  const double momentum_;
  const double weight_decay_;
  const bool centered_;
};

class AdadeltaOptimizer : public Base {
 public:
  explicit AdadeltaOptimizer(const Args& args)
      : Base(args),
        rho_(args.at("rho")),
        epsilon_(args.at("epsilon")),
        weight_decay_(args.at("weight_decay")) {
    AddSlot("accum_grad");
    AddSlot("accum_var");
  }

 private:
  void Run(Formulas& formulas, double lr, int64_t) const override {
    formulas.Adadelta(
        {F(lr), F(rho_), F(1 - rho_), F(epsilon_), F(weight_decay_)});
  }

  const double rho_;
  const double epsilon_;
  const double weight_decay_;
};

class AdamaxOptimizer : public Base {
 public:
  explicit AdamaxOptimizer(const Args& args)
      : Base(args),
        beta1_(args.at("beta1")),
        beta2_(args.at("beta2")),
        epsilon_(args.at("epsilon")),
        weight_decay_(args.at("weight_decay")) {
    AddSlot("m");
    AddSlot("v");
  }

 private:
  void Run(Formulas& formulas, double lr, int64_t step) const override {
    const double step_size =
        lr / (1 - std::pow(beta1_, static_cast<double>(step)));
    formulas.Adamax({F(step_size), F(beta1_), F(1 - beta1_), F(beta2_),
                     F(epsilon_), F(weight_decay_)});
  }

  const double beta1_;
  const double beta2_;
  const double epsilon_;
  const double weight_decay_;
};

// With torch's momentum schedule mu(t) = beta1 (1 - 0.96^(t decay) / 2).
class NadamOptimizer : public Base {
 public:
  explicit NadamOptimizer(const Args& args)
      : Base(args),
        beta1_(args.at("beta1")),
        beta2_(args.at("beta2")),
        epsilon_(args.at("epsilon")),
        momentum_decay_(args.at("momentum_decay")),
        weight_decay_(args.at("weight_decay")) {
    AddSlot("m");
    AddSlot("v");
    double product = 1;
    mu_products_.push_back(product);
    for (int64_t t = 1; t <= kMaxTable && product > kNothing; ++t) {
      product *= Mu(t);
      mu_products_.push_back(product);
    }
  }

 private:
  // A product below this does not change 1 - product in double precision.
  static constexpr double kNothing = 1e-18;
  // At most 512 KiB. Only betas very close to 1 get this far. By then
  // 0.96^(t decay) has vanished, so the rest of the product is a power of
  // beta1.
  static constexpr int64_t kMaxTable = 1 << 16;

  double Mu(int64_t t) const {
    return beta1_ *
           (1 - 0.5 * std::pow(0.96, static_cast<double>(t) * momentum_decay_));
  }
  double MuProduct(int64_t t) const {
    const int64_t last = static_cast<int64_t>(mu_products_.size()) - 1;
    if (t <= last) return mu_products_[static_cast<size_t>(t)];
    return mu_products_.back() *
           std::pow(Mu(last), static_cast<double>(t - last));
  }

  void Run(Formulas& formulas, double lr, int64_t step) const override {
    const double mu = Mu(step);
    const double mu_next = Mu(step + 1);
    const double product = MuProduct(step);
    NadamConstants c;
    c.grad_size = F(lr * (1 - mu) / (1 - product));
    c.m_size = F(lr * mu_next / (1 - product * mu_next));
    c.scale = F(1 / std::sqrt(1 - std::pow(beta2_, static_cast<double>(step))));
    c.beta1 = F(beta1_);
    c.one_minus_beta1 = F(1 - beta1_);
    c.beta2 = F(beta2_);
    c.one_minus_beta2 = F(1 - beta2_);
    c.epsilon = F(epsilon_);
    c.weight_decay = F(weight_decay_);
    formulas.Nadam(c);
  }

  const double beta1_;
  const double beta2_;
  const double epsilon_;
  const double momentum_decay_;
  const double weight_decay_;
  // Products of Mu(1) … Mu(t).
  std::vector<double> mu_products_;
};

class FtrlOptimizer : public Base {
 public:
  explicit FtrlOptimizer(const Args& args)
      : Base(args),
        power_(-args.at("learning_rate_power")),
        l1_(args.at("l1_regularization_strength")),
        l2_(args.at("l2_regularization_strength")),
        l2_shrinkage_(args.at("l2_shrinkage_regularization_strength")),
        beta_(args.at("beta")) {
    AddSlot("accumulator", args.at("initial_accumulator_value"));
    AddSlot("linear");
  }

 private:
  void Run(Formulas& formulas, double lr, int64_t) const override {
    // FTRL divides by the learning rate; with a rate of 0 nothing changes.
    if (lr == 0) return;
    const FtrlConstants c{F(1 / lr), F(l1_), F(2 * l2_ + beta_ / lr),
                          F(2 * l2_shrinkage_), F(power_)};
    formulas.Ftrl(c);
  }

  const double power_;
  const double l1_;
  const double l2_;
  const double l2_shrinkage_;
  const double beta_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> Optimizer::Create(
    const OptimizerSpec& spec) {
  ELASTICDL_ASSIGN_OR_RETURN(const OptimizerSpec canonical, spec.Canonical());
  const Args args = internal::WithDefaults(canonical);
  const std::string& type = canonical.type;
  std::unique_ptr<Optimizer> made;
  if (type == "SGD") made = std::make_unique<SgdOptimizer>(args);
  if (type == "Adam") made = std::make_unique<AdamOptimizer>(args, false);
  if (type == "AdamW") made = std::make_unique<AdamOptimizer>(args, true);
  if (type == "Adagrad") made = std::make_unique<AdagradOptimizer>(args);
  if (type == "RMSprop") made = std::make_unique<RmsPropOptimizer>(args);
  if (type == "Adadelta") made = std::make_unique<AdadeltaOptimizer>(args);
  if (type == "Adamax") made = std::make_unique<AdamaxOptimizer>(args);
  if (type == "Nadam") made = std::make_unique<NadamOptimizer>(args);
  if (type == "Ftrl") made = std::make_unique<FtrlOptimizer>(args);
  ELASTICDL_CHECK(made != nullptr);
  return made;
}

}  // namespace elasticdl::optim
