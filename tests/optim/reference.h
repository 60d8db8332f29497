// The optimizers' formulas in double precision, one element at a time, written
// down from their papers and torch.optim's documentation and independently of
// the kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "elasticdl/common/check.h"

namespace elasticdl::optim::test {

using Args = std::map<std::string, double>;

// The learning rate's schedule of NAdam, summed up naively.
struct NadamMu {
  double now = 0, next = 0, product = 1;
};
inline NadamMu ComputeNadamMu(double beta1, double decay, int64_t step) {
  NadamMu mu;
  for (int64_t t = 1; t <= step; ++t) {
    mu.now = beta1 * (1 - 0.5 * std::pow(0.96, t * decay));
    mu.next = beta1 * (1 - 0.5 * std::pow(0.96, (t + 1) * decay));
    mu.product *= mu.now;
  }
  return mu;
}

inline void ReferenceAdam(const Args& a, bool decoupled, double& p, double g,
                          std::vector<double>& s, double lr, double t) {
  const double b1 = a.at("beta1"), b2 = a.at("beta2");
  if (decoupled) {
    p -= lr * a.at("weight_decay") * p;
  } else {
    g += a.at("weight_decay") * p;
  }
  s[0] = b1 * s[0] + (1 - b1) * g;
  s[1] = b2 * s[1] + (1 - b2) * g * g;
  double v = s[1];
  if (a.at("amsgrad") != 0) v = s[2] = std::fmax(s[2], s[1]);
  const double m_hat = s[0] / (1 - std::pow(b1, t));
  const double v_hat = v / (1 - std::pow(b2, t));
  p -= lr * m_hat / (std::sqrt(v_hat) + a.at("epsilon"));
}

inline void ReferenceRmsProp(const Args& a, double& p, double g,
                             std::vector<double>& s, double lr) {
  const double alpha = a.at("alpha");
  g += a.at("weight_decay") * p;
  size_t slot = 0;
  s[slot] = alpha * s[slot] + (1 - alpha) * g * g;
  double variance = s[slot++];
  if (a.at("centered") != 0) {
    s[slot] = alpha * s[slot] + (1 - alpha) * g;
    variance = std::fmax(variance - s[slot] * s[slot], 0);
    ++slot;
  }
  double update = g / (std::sqrt(variance) + a.at("epsilon"));
  if (a.at("momentum") != 0) {
    s[slot] = a.at("momentum") * s[slot] + update;
    update = s[slot];
  }
  p -= lr * update;
}

inline void ReferenceFtrl(const Args& a, double& p, double g,
                          std::vector<double>& s, double lr) {
  const double power = -a.at("learning_rate_power");
  const double l1 = a.at("l1_regularization_strength");
  const double l2 =
      a.at("l2_regularization_strength") + a.at("beta") / (2 * lr);
  const double fresh = s[0] + g * g;
  s[1] += g + 2 * a.at("l2_shrinkage_regularization_strength") * p -
          (std::pow(fresh, power) - std::pow(s[0], power)) / lr * p;
  const double quadratic = std::pow(fresh, power) / lr + 2 * l2;
  p = 0;
  if (s[1] > l1) p = (l1 - s[1]) / quadratic;
  if (s[1] < -l1) p = (-l1 - s[1]) / quadratic;
  s[0] = fresh;
}

// One step of one element; `a` has all arguments, `s` the slots.
inline void ReferenceStep(const std::string& type, const Args& a, double& p,
                          double g, std::vector<double>& s, double lr,
                          int64_t step) {
  const double t = static_cast<double>(step);
  if (type == "Adam" || type == "AdamW") {
    return ReferenceAdam(a, type == "AdamW", p, g, s, lr, t);
  }
  if (type == "RMSprop") return ReferenceRmsProp(a, p, g, s, lr);
  if (type == "Ftrl") return ReferenceFtrl(a, p, g, s, lr);
  g += a.at("weight_decay") * p;
  if (type == "SGD") {
    const double momentum = a.at("momentum");
    if (momentum != 0) {
      s[0] = step == 1 ? momentum * s[0] + g
                       : momentum * s[0] + (1 - a.at("dampening")) * g;
      g = a.at("nesterov") != 0 ? g + momentum * s[0] : s[0];
    }
    p -= lr * g;
  } else if (type == "Adagrad") {
    s[0] += g * g;
    p -= lr / (1 + (t - 1) * a.at("lr_decay")) * g /
         (std::sqrt(s[0]) + a.at("epsilon"));
  } else if (type == "Adadelta") {
    const double rho = a.at("rho"), epsilon = a.at("epsilon");
    s[0] = rho * s[0] + (1 - rho) * g * g;
    const double delta =
        std::sqrt(s[1] + epsilon) / std::sqrt(s[0] + epsilon) * g;
    s[1] = rho * s[1] + (1 - rho) * delta * delta;
    p -= lr * delta;
  } else if (type == "Adamax") {
    const double b1 = a.at("beta1");
    s[0] = b1 * s[0] + (1 - b1) * g;
    s[1] = std::fmax(a.at("beta2") * s[1], std::fabs(g) + a.at("epsilon"));
    p -= lr / (1 - std::pow(b1, t)) * s[0] / s[1];
  } else if (type == "Nadam") {
    const double b1 = a.at("beta1"), b2 = a.at("beta2");
    const NadamMu mu = ComputeNadamMu(b1, a.at("momentum_decay"), step);
    s[0] = b1 * s[0] + (1 - b1) * g;
    s[1] = b2 * s[1] + (1 - b2) * g * g;
    const double denominator =
        std::sqrt(s[1] / (1 - std::pow(b2, t))) + a.at("epsilon");
    p -= lr * (1 - mu.now) / (1 - mu.product) * g / denominator;
    p -= lr * mu.next / (1 - mu.product * mu.next) * s[0] / denominator;
  } else {
    ELASTICDL_CHECK(false);
  }
}

}  // namespace elasticdl::optim::test
