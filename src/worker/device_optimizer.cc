#include "device_optimizer.h"

#include "elasticdl/optim_formulas.h"

namespace elasticdl::worker {
namespace {

using torch::Tensor;

// old = a * old + b * fresh
void Average(const Tensor& old, float a, const Tensor& fresh, float b) {
  old.mul_(a).add_(fresh, b);
}
// The same with the square of `fresh`.
void AverageOfSquare(const Tensor& old, float a, const Tensor& fresh, float b) {
  old.mul_(a).addcmul_(fresh, fresh, b);
}

// Formulas in place wherever possible: memory of a device is scarce, and each
// operation is a pass over it.
class TensorFormulas : public optim::Formulas {
 public:
  TensorFormulas(const Tensor& values, const Tensor& gradients,
                 const std::vector<Tensor>& slots)
      : p_(values), g_(gradients), slots_(slots) {}

  void Sgd(const optim::SgdConstants& c) override {
    Decay(c.weight_decay);
    if (!c.has_momentum) {
      p_.add_(g_, -c.lr);
      return;
    }
    const Tensor& buffer = slots_[0];
    Average(buffer, c.momentum, g_, c.grad_scale);
    p_.add_(c.nesterov ? g_.add_(buffer, c.momentum) : buffer, -c.lr);
  }

  void Adam(const optim::AdamConstants& c) override {
    Decay(c.weight_decay);
    const Tensor& m = slots_[0];
    const Tensor& v = slots_[1];
    Average(m, c.beta1, g_, c.one_minus_beta1);
    AverageOfSquare(v, c.beta2, g_, c.one_minus_beta2);
    Tensor root = v;
    if (c.amsgrad) {
      torch::maximum_out(const_cast<Tensor&>(slots_[2]), slots_[2], v);
      root = slots_[2];
    }
    root = root.sqrt().mul_(c.scale).add_(c.epsilon);
    if (c.decay != 1) p_.mul_(c.decay);
    p_.addcdiv_(m, root, -c.step_size);
  }

  void Adagrad(const optim::AdagradConstants& c) override {
    Decay(c.weight_decay);
    const Tensor& sum = slots_[0];
    sum.addcmul_(g_, g_);
    Tensor change = g_.div(sum.sqrt().add_(c.epsilon));
    // epsilon may be 0: 0/0 must change nothing.
    change.masked_fill_(g_.eq(0), 0);
    p_.add_(change, -c.lr);
  }

  void RmsProp(const optim::RmsPropConstants& c) override {
    Decay(c.weight_decay);
    const Tensor& rms = slots_[0];
    AverageOfSquare(rms, c.alpha, g_, c.one_minus_alpha);
    Tensor root;
    if (c.centered) {
      const Tensor& mean = slots_[1];
      Average(mean, c.alpha, g_, c.one_minus_alpha);
      root = rms.addcmul(mean, mean, -1).clamp_min_(0).sqrt_();
    } else {
      root = rms.sqrt();
    }
    g_.div_(root.add_(c.epsilon));
    if (c.has_momentum) {
      const Tensor& buffer = slots_[c.centered ? 2 : 1];
      buffer.mul_(c.momentum).add_(g_);
      p_.add_(buffer, -c.lr);
    } else {
      p_.add_(g_, -c.lr);
    }
  }

  void Adadelta(const optim::AdadeltaConstants& c) override {
    Decay(c.weight_decay);
    const Tensor& square = slots_[0];
    const Tensor& delta_square = slots_[1];
    AverageOfSquare(square, c.rho, g_, c.one_minus_rho);
    const Tensor delta = delta_square.add(c.epsilon)
                             .div_(square.add(c.epsilon))
                             .sqrt_()
                             .mul_(g_);
    AverageOfSquare(delta_square, c.rho, delta, c.one_minus_rho);
    p_.add_(delta, -c.lr);
  }

  void Adamax(const optim::AdamaxConstants& c) override {
    Decay(c.weight_decay);
    const Tensor& m = slots_[0];
    Tensor v = slots_[1];
    Average(m, c.beta1, g_, c.one_minus_beta1);
    v.mul_(c.beta2);
    torch::maximum_out(v, v, g_.abs_().add_(c.epsilon));
    p_.addcdiv_(m, v, -c.step_size);
  }

  void Nadam(const optim::NadamConstants& c) override {
    Decay(c.weight_decay);
    const Tensor& m = slots_[0];
    const Tensor& v = slots_[1];
    Average(m, c.beta1, g_, c.one_minus_beta1);
    AverageOfSquare(v, c.beta2, g_, c.one_minus_beta2);
    const Tensor root = v.sqrt().mul_(c.scale).add_(c.epsilon);
    g_.mul_(c.grad_size).add_(m, c.m_size);
    p_.addcdiv_(g_, root, -1);
  }

  void Ftrl(const optim::FtrlConstants& c) override {
    const Tensor& accumulator = slots_[0];
    const Tensor& linear = slots_[1];
    const auto power = [&c](const Tensor& of) {
      return c.power == 0.5F ? of.sqrt() : of.pow(c.power);
    };
    const Tensor former = power(accumulator);
    accumulator.addcmul_(g_, g_);
    const Tensor root = power(accumulator);
    const Tensor sigma = root.sub(former).mul_(c.inverse_lr);
    linear.add_(g_.add_(p_, c.two_l2_shrinkage)).addcmul_(sigma, p_, -1);
    const Tensor quadratic = root.mul(c.inverse_lr).add_(c.two_l2);
    p_.copy_(linear.sign().mul_(c.l1).sub_(linear).div_(quadratic));
    p_.masked_fill_(linear.abs().le(c.l1), 0);
  }

 private:
  void Decay(float weight_decay) {
    if (weight_decay != 0) g_.add_(p_, weight_decay);
  }

  const Tensor& p_;
  const Tensor& g_;
  const std::vector<Tensor>& slots_;
};

}  // namespace

void ApplyWithTensors(const optim::Optimizer& optimizer,
                      const torch::Tensor& values,
                      const torch::Tensor& gradients,
                      const std::vector<torch::Tensor>& slots,
                      double learning_rate, int64_t step) {
  const torch::NoGradGuard no_grad;
  TensorFormulas formulas(values, gradients, slots);
  optimizer.Visit(formulas, learning_rate, step);
}

void ClipTensorByNorm(double most, const torch::Tensor& gradients) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor norm = gradients.norm(2, torch::kDouble);
  // Not a number stays what it is, as on the CPU.
  const torch::Tensor factor = torch::where(
      norm.gt(most), norm.reciprocal().mul(most), torch::ones_like(norm));
  gradients.mul_(factor.to(torch::kFloat));
}

}  // namespace elasticdl::worker
