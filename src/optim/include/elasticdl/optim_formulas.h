// The formulas of the optimizers with the constants of one step, for
// implementations that do not run on the CPU (src/worker/device_optimizer.h).
#pragma once

namespace elasticdl::optim {

// In all formulas g is `grad + weight_decay * p`.

// slots: {buf} with momentum. buf = momentum*buf + grad_scale*g;
// p -= lr * (nesterov ? g + momentum*buf : buf).
struct SgdConstants {
  float lr;
  float momentum;
  float grad_scale;
  float weight_decay;
  bool has_momentum;
  bool nesterov;
};

// slots: {m, v} or, with amsgrad, {m, v, vhat}. First p *= decay (AdamW), then
// m, v are the moving averages of g, g²; vhat = max(vhat, v);
// p -= step_size * m / (sqrt(v or vhat) * scale + epsilon).
struct AdamConstants {
  float step_size;
  float scale;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float epsilon;
  float weight_decay;
  float decay;
  bool amsgrad;
};

// slots: {sum}. sum += g²; p -= lr * g / (sqrt(sum) + epsilon).
struct AdagradConstants {
  float lr;
  float epsilon;
  float weight_decay;
};

// slots: {rms}, then {mg} if centered, then {buf} with momentum.
// p -= lr * u, u = g / (sqrt(rms - mg²) + epsilon), through buf if any.
struct RmsPropConstants {
  float lr;
  float alpha;
  float one_minus_alpha;
  float epsilon;
  float momentum;
  float weight_decay;
  bool centered;
  bool has_momentum;
};

// slots: {accum_grad, accum_var}.
struct AdadeltaConstants {
  float lr;
  float rho;
  float one_minus_rho;
  float epsilon;
  float weight_decay;
};

// slots: {m, v}; v = max(beta2 * v, |g| + epsilon); p -= step_size * m / v.
struct AdamaxConstants {
  float step_size;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float epsilon;
  float weight_decay;
};

// slots: {m, v}; p -= (grad_size * g + m_size * m) / (sqrt(v) * scale +
// epsilon).
struct NadamConstants {
  float grad_size;
  float m_size;
  float scale;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float epsilon;
  float weight_decay;
};

// slots: {accumulator, linear}. With n = accumulator + grad²,
// linear += grad + two_l2_shrinkage*p - (n^power - accumulator^power) *
// inverse_lr * p; p = |linear| <= l1 ? 0 : (sign(linear)*l1 - linear) /
// (n^power * inverse_lr + two_l2); accumulator = n.
struct FtrlConstants {
  float inverse_lr;
  float l1;
  float two_l2;
  float two_l2_shrinkage;
  // Minus the learning-rate power.
  float power;
};

// Computes the formula that it is given. See Optimizer::Visit.
class Formulas {
 public:
  virtual ~Formulas() = default;
  virtual void Sgd(const SgdConstants& c) = 0;
  virtual void Adam(const AdamConstants& c) = 0;
  virtual void Adagrad(const AdagradConstants& c) = 0;
  virtual void RmsProp(const RmsPropConstants& c) = 0;
  virtual void Adadelta(const AdadeltaConstants& c) = 0;
  virtual void Adamax(const AdamaxConstants& c) = 0;
  virtual void Nadam(const NadamConstants& c) = 0;
  virtual void Ftrl(const FtrlConstants& c) = 0;
};

}  // namespace elasticdl::optim
