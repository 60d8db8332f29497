// The update formulas as one fused pass over memory, compiled for several
// instruction sets; the best one for the CPU is chosen at run time.
#pragma once

#include "elasticdl/optim.h"

namespace elasticdl::optim::internal {

// The arrays of one call.
using Arrays = Update;

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
void ApplySgd(const SgdConstants& c, const Arrays& a);

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
void ApplyAdam(const AdamConstants& c, const Arrays& a);

// slots: {sum}. sum += g²; p -= lr * g / (sqrt(sum) + epsilon).
struct AdagradConstants {
  float lr;
  float epsilon;
  float weight_decay;
};
void ApplyAdagrad(const AdagradConstants& c, const Arrays& a);

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
void ApplyRmsProp(const RmsPropConstants& c, const Arrays& a);

// slots: {accum_grad, accum_var}.
struct AdadeltaConstants {
  float lr;
  float rho;
  float one_minus_rho;
  float epsilon;
  float weight_decay;
};
void ApplyAdadelta(const AdadeltaConstants& c, const Arrays& a);

// slots: {m, v}; v = max(beta2 * v, |g| + epsilon); p -= step_size * m / v.
struct AdamaxConstants {
  float step_size;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float epsilon;
  float weight_decay;
};
void ApplyAdamax(const AdamaxConstants& c, const Arrays& a);

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
void ApplyNadam(const NadamConstants& c, const Arrays& a);

// slots: {accumulator, linear}. The learning-rate power is -0.5 (a square
// root); others are computed by ApplyFtrlAnyPower, element by element.
struct FtrlConstants {
  float inverse_lr;
  float l1;
  float two_l2;
  float two_l2_shrinkage;
  // Minus the learning-rate power.
  float power;
};
void ApplyFtrl(const FtrlConstants& c, const Arrays& a);
void ApplyFtrlAnyPower(const FtrlConstants& c, const Arrays& a);

}  // namespace elasticdl::optim::internal
