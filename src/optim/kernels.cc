// Update formulas over Highway vectors. This file is compiled once per
// instruction set (foreach_target.h includes it again), hence the odd guards.
#include "kernels.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

// SSSE3 and AVX3_DL add nothing that these formulas use; each target costs
// compile time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace elasticdl::optim::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE V C(float value) { return hn::Set(D(), value); }
HWY_INLINE V Decayed(V grad, V param, float weight_decay) {
  return hn::MulAdd(C(weight_decay), param, grad);
}
// a * old + b * fresh
HWY_INLINE V Average(float a, V old, float b, V fresh) {
  return hn::MulAdd(C(a), old, hn::Mul(C(b), fresh));
}

// Updates one vector at each pointer. Slots that Op does not use are dummies.
template <class Op>
HWY_INLINE void Update(const Op& op, float* param, const float* grad,
                       float* slot0, float* slot1, float* slot2) {
  const D d;
  V p = hn::LoadU(d, param);
  const V g = hn::LoadU(d, grad);
  V s0 = p;
  V s1 = p;
  V s2 = p;
  if constexpr (Op::kSlots > 0) s0 = hn::LoadU(d, slot0);
  if constexpr (Op::kSlots > 1) s1 = hn::LoadU(d, slot1);
  if constexpr (Op::kSlots > 2) s2 = hn::LoadU(d, slot2);
  op.Step(p, g, s0, s1, s2);
  hn::StoreU(p, d, param);
  if constexpr (Op::kSlots > 0) hn::StoreU(s0, d, slot0);
  if constexpr (Op::kSlots > 1) hn::StoreU(s1, d, slot1);
  if constexpr (Op::kSlots > 2) hn::StoreU(s2, d, slot2);
}

// Updates the last elements, fewer than a vector, through copies.
template <class Op>
HWY_NOINLINE void UpdateTail(const Op& op, float* param, const float* grad,
                             float* const* slots, size_t count) {
  // param, grad and up to three slots, padded with 0.
  HWY_ALIGN float copy[5][hn::MaxLanes(D())] = {};
  const size_t bytes = count * sizeof(float);
  std::memcpy(copy[0], param, bytes);
  std::memcpy(copy[1], grad, bytes);
  for (size_t s = 0; s < Op::kSlots; ++s) {
    std::memcpy(copy[2 + s], slots[s], bytes);
  }
  Update(op, copy[0], copy[1], copy[2], copy[3], copy[4]);
  std::memcpy(param, copy[0], bytes);
  for (size_t s = 0; s < Op::kSlots; ++s) {
    std::memcpy(slots[s], copy[2 + s], bytes);
  }
}

HWY_INLINE void Mark(std::atomic<uint64_t>& word, uint64_t value) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  word.store(value, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// With an UndoLog. A block is so small that its old values stay in the
// first-level cache and that the memory is read ahead as without a log.
template <class Op>
HWY_NOINLINE void LoggedLoop(const Op op, const Arrays& arrays) {
  const D d;
  const UndoLog log = *arrays.log;
  constexpr size_t kBlock = UndoLog::kFloats;
  constexpr size_t kArrays = 1 + Op::kSlots;
  float* all[4] = {arrays.param, arrays.param, arrays.param, arrays.param};
  for (size_t s = 0; s < Op::kSlots; ++s) all[1 + s] = arrays.slots[s];
  const size_t lanes = std::min(hn::Lanes(d), kBlock);
  Mark(*log.count, kBlock);
  size_t i = 0;
  for (; i + kBlock <= arrays.n && kBlock % lanes == 0; i += kBlock) {
    for (size_t a = 0; a < kArrays; ++a) {
      for (size_t j = 0; j < kBlock; j += lanes) {
        hn::StoreU(hn::LoadU(d, all[a] + i + j), d,
                   log.old_values + a * kBlock + j);
      }
    }
    Mark(*log.progress, (log.base + i) << 1 | 1);
    for (size_t j = i; j < i + kBlock; j += lanes) {
      Update(op, all[0] + j, arrays.grad + j, all[1] + j, all[2] + j,
             all[3] + j);
    }
    Mark(*log.progress, (log.base + i + kBlock) << 1);
  }
  while (i < arrays.n) {
    const size_t count = std::min(lanes, arrays.n - i);
    for (size_t a = 0; a < kArrays; ++a) {
      std::memcpy(log.old_values + a * kBlock, all[a] + i,
                  count * sizeof(float));
    }
    Mark(*log.count, count);
    Mark(*log.progress, (log.base + i) << 1 | 1);
    float* const tails[3] = {all[1] + i, all[2] + i, all[3] + i};
    UpdateTail(op, all[0] + i, arrays.grad + i, tails, count);
    i += count;
    Mark(*log.progress, (log.base + i) << 1);
  }
}

template <class Op>
HWY_INLINE void Loop(const Op op, const Arrays& arrays) {
  if (arrays.log != nullptr) return LoggedLoop(op, arrays);
  // Copies, so that stores through the pointers cannot change them.
  float* const param = arrays.param;
  const float* const grad = arrays.grad;
  const size_t n = arrays.n;
  float* slots[3] = {param, param, param};
  for (size_t s = 0; s < Op::kSlots; ++s) slots[s] = arrays.slots[s];
  float* const s0 = slots[0];
  float* const s1 = slots[1];
  float* const s2 = slots[2];
  const size_t lanes = hn::Lanes(D());
  size_t i = 0;
  // Unrolled by four: otherwise the loop itself takes a third of SGD's time.
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    for (size_t j = i; j < i + 4 * lanes; j += lanes) {
      Update(op, param + j, grad + j, s0 + j, s1 + j, s2 + j);
    }
  }
  for (; i + lanes <= n; i += lanes) {
    Update(op, param + i, grad + i, s0 + i, s1 + i, s2 + i);
  }
  if (i == n) return;
  float* const tails[3] = {s0 + i, s1 + i, s2 + i};
  UpdateTail(op, param + i, grad + i, tails, n - i);
}

template <bool kMomentum, bool kNesterov>
struct SgdOp {
  static constexpr size_t kSlots = kMomentum ? 1 : 0;
  SgdConstants c;
  HWY_INLINE void Step(V& p, V grad, V& buf, V&, V&) const {
    V u = Decayed(grad, p, c.weight_decay);
    if constexpr (kMomentum) {
      buf = Average(c.momentum, buf, c.grad_scale, u);
      u = kNesterov ? hn::MulAdd(C(c.momentum), buf, u) : buf;
    }
    p = hn::NegMulAdd(C(c.lr), u, p);
  }
};

void Sgd(const SgdConstants& c, const Arrays& a) {
  if (!c.has_momentum) return Loop(SgdOp<false, false>{c}, a);
  if (c.nesterov) return Loop(SgdOp<true, true>{c}, a);
  Loop(SgdOp<true, false>{c}, a);
}

template <bool kAmsgrad>
struct AdamOp {
  static constexpr size_t kSlots = kAmsgrad ? 3 : 2;
  AdamConstants c;
  HWY_INLINE void Step(V& p, V grad, V& m, V& v, V& vhat) const {
    const V g = Decayed(grad, p, c.weight_decay);
    m = Average(c.beta1, m, c.one_minus_beta1, g);
    v = Average(c.beta2, v, c.one_minus_beta2, hn::Mul(g, g));
    if constexpr (kAmsgrad) vhat = hn::Max(vhat, v);
    const V denominator =
        hn::MulAdd(hn::Sqrt(kAmsgrad ? vhat : v), C(c.scale), C(c.epsilon));
    p = hn::NegMulAdd(C(c.step_size), hn::Div(m, denominator),
                      hn::Mul(p, C(c.decay)));
  }
};

void Adam(const AdamConstants& c, const Arrays& a) {
  if (c.amsgrad) return Loop(AdamOp<true>{c}, a);
  Loop(AdamOp<false>{c}, a);
}

struct AdagradOp {
  static constexpr size_t kSlots = 1;
  AdagradConstants c;
  HWY_INLINE void Step(V& p, V grad, V& sum, V&, V&) const {
    const V g = Decayed(grad, p, c.weight_decay);
    sum = hn::MulAdd(g, g, sum);
    const V denominator = hn::Add(hn::Sqrt(sum), C(c.epsilon));
    // epsilon may be 0. A gradient of 0 must then change nothing, not give 0/0.
    const V u =
        hn::IfThenZeroElse(hn::Eq(g, hn::Zero(D())), hn::Div(g, denominator));
    p = hn::NegMulAdd(C(c.lr), u, p);
  }
};

void Adagrad(const AdagradConstants& c, const Arrays& a) {
  Loop(AdagradOp{c}, a);
}

template <bool kCentered, bool kMomentum>
struct RmsPropOp {
  static constexpr size_t kSlots =
      1 + (kCentered ? 1 : 0) + (kMomentum ? 1 : 0);
  RmsPropConstants c;
  HWY_INLINE void Step(V& p, V grad, V& rms, V& s1, V& s2) const {
    const V g = Decayed(grad, p, c.weight_decay);
    rms = Average(c.alpha, rms, c.one_minus_alpha, hn::Mul(g, g));
    V variance = rms;
    if constexpr (kCentered) {
      s1 = Average(c.alpha, s1, c.one_minus_alpha, g);
      // Rounding can make the difference slightly negative.
      variance = hn::Max(hn::NegMulAdd(s1, s1, rms), hn::Zero(D()));
    }
    V u = hn::Div(g, hn::Add(hn::Sqrt(variance), C(c.epsilon)));
    if constexpr (kMomentum) {
      V& buf = kCentered ? s2 : s1;
      buf = hn::MulAdd(C(c.momentum), buf, u);
      u = buf;
    }
    p = hn::NegMulAdd(C(c.lr), u, p);
  }
};

void RmsProp(const RmsPropConstants& c, const Arrays& a) {
  if (c.centered) {
    if (c.has_momentum) return Loop(RmsPropOp<true, true>{c}, a);
    return Loop(RmsPropOp<true, false>{c}, a);
  }
  if (c.has_momentum) return Loop(RmsPropOp<false, true>{c}, a);
  Loop(RmsPropOp<false, false>{c}, a);
}

struct AdadeltaOp {
  static constexpr size_t kSlots = 2;
  AdadeltaConstants c;
  HWY_INLINE void Step(V& p, V grad, V& square, V& delta_square, V&) const {
    const V g = Decayed(grad, p, c.weight_decay);
    square = Average(c.rho, square, c.one_minus_rho, hn::Mul(g, g));
    const V delta =
        hn::Mul(hn::Sqrt(hn::Div(hn::Add(delta_square, C(c.epsilon)),
                                 hn::Add(square, C(c.epsilon)))),
                g);
    delta_square =
        Average(c.rho, delta_square, c.one_minus_rho, hn::Mul(delta, delta));
    p = hn::NegMulAdd(C(c.lr), delta, p);
  }
};

void Adadelta(const AdadeltaConstants& c, const Arrays& a) {
  Loop(AdadeltaOp{c}, a);
}

struct AdamaxOp {
  static constexpr size_t kSlots = 2;
  AdamaxConstants c;
  HWY_INLINE void Step(V& p, V grad, V& m, V& v, V&) const {
    const V g = Decayed(grad, p, c.weight_decay);
    m = Average(c.beta1, m, c.one_minus_beta1, g);
    v = hn::Max(hn::Mul(C(c.beta2), v), hn::Add(hn::Abs(g), C(c.epsilon)));
    p = hn::NegMulAdd(C(c.step_size), hn::Div(m, v), p);
  }
};

void Adamax(const AdamaxConstants& c, const Arrays& a) { Loop(AdamaxOp{c}, a); }

struct NadamOp {
  static constexpr size_t kSlots = 2;
  NadamConstants c;
  HWY_INLINE void Step(V& p, V grad, V& m, V& v, V&) const {
    const V g = Decayed(grad, p, c.weight_decay);
    m = Average(c.beta1, m, c.one_minus_beta1, g);
    v = Average(c.beta2, v, c.one_minus_beta2, hn::Mul(g, g));
    const V denominator = hn::MulAdd(hn::Sqrt(v), C(c.scale), C(c.epsilon));
    p = hn::Sub(p, hn::Div(Average(c.grad_size, g, c.m_size, m), denominator));
  }
};

void Nadam(const NadamConstants& c, const Arrays& a) { Loop(NadamOp{c}, a); }

struct FtrlOp {
  static constexpr size_t kSlots = 2;
  FtrlConstants c;
  HWY_INLINE void Step(V& p, V grad, V& accumulator, V& linear, V&) const {
    const V zero = hn::Zero(D());
    const V shrunk = hn::MulAdd(C(c.two_l2_shrinkage), p, grad);
    const V fresh = hn::MulAdd(grad, grad, accumulator);
    const V root = hn::Sqrt(fresh);
    const V sigma =
        hn::Mul(hn::Sub(root, hn::Sqrt(accumulator)), C(c.inverse_lr));
    linear = hn::NegMulAdd(sigma, p, hn::Add(linear, shrunk));
    const V quadratic = hn::MulAdd(root, C(c.inverse_lr), C(c.two_l2));
    const V l1 = hn::CopySign(C(c.l1), linear);
    p = hn::IfThenElse(hn::Gt(hn::Abs(linear), C(c.l1)),
                       hn::Div(hn::Sub(l1, linear), quadratic), zero);
    accumulator = fresh;
  }
};

void Ftrl(const FtrlConstants& c, const Arrays& a) { Loop(FtrlOp{c}, a); }

}  // namespace HWY_NAMESPACE
}  // namespace elasticdl::optim::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elasticdl::optim::internal {

HWY_EXPORT(Sgd);
HWY_EXPORT(Adam);
HWY_EXPORT(Adagrad);
HWY_EXPORT(RmsProp);
HWY_EXPORT(Adadelta);
HWY_EXPORT(Adamax);
HWY_EXPORT(Nadam);
HWY_EXPORT(Ftrl);

void ApplySgd(const SgdConstants& c, const Arrays& a) {
  HWY_DYNAMIC_DISPATCH(Sgd)(c, a);
}
void ApplyAdam(const AdamConstants& c, const Arrays& a) {
  HWY_DYNAMIC_DISPATCH(Adam)(c, a);
}
void ApplyAdagrad(const AdagradConstants& c, const Arrays& a) {
  HWY_DYNAMIC_DISPATCH(Adagrad)(c, a);
}
void ApplyRmsProp(const RmsPropConstants& c, const Arrays& a) {
  HWY_DYNAMIC_DISPATCH(RmsProp)(c, a);
}
void ApplyAdadelta(const AdadeltaConstants& c, const Arrays& a) {
  HWY_DYNAMIC_DISPATCH(Adadelta)(c, a);
}
void ApplyAdamax(const AdamaxConstants& c, const Arrays& a) {
  HWY_DYNAMIC_DISPATCH(Adamax)(c, a);
}
void ApplyNadam(const NadamConstants& c, const Arrays& a) {
  HWY_DYNAMIC_DISPATCH(Nadam)(c, a);
}
void ApplyFtrl(const FtrlConstants& c, const Arrays& a) {
  HWY_DYNAMIC_DISPATCH(Ftrl)(c, a);
}

namespace {

void FtrlAnyPowerStep(const FtrlConstants& c, const Arrays& a, size_t i) {
  float* const accumulator = a.slots[0];
  float* const linear = a.slots[1];
  float& p = a.param[i];
  const float fresh = accumulator[i] + a.grad[i] * a.grad[i];
  const float root = std::pow(fresh, c.power);
  const float sigma = (root - std::pow(accumulator[i], c.power)) * c.inverse_lr;
  linear[i] += a.grad[i] + c.two_l2_shrinkage * p - sigma * p;
  const float quadratic = root * c.inverse_lr + c.two_l2;
  p = std::fabs(linear[i]) > c.l1
          ? (std::copysign(c.l1, linear[i]) - linear[i]) / quadratic
          : 0.0f;
  accumulator[i] = fresh;
}

}  // namespace

// std::pow takes so long that the log need not be fast.
void ApplyFtrlAnyPower(const FtrlConstants& c, const Arrays& a) {
  if (a.log == nullptr) {
    for (size_t i = 0; i < a.n; ++i) FtrlAnyPowerStep(c, a, i);
    return;
  }
  const UndoLog& log = *a.log;
  const auto mark = [](std::atomic<uint64_t>& word, uint64_t value) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    word.store(value, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  };
  mark(*log.count, 1);
  for (size_t i = 0; i < a.n; ++i) {
    log.old_values[0] = a.param[i];
    log.old_values[UndoLog::kFloats] = a.slots[0][i];
    log.old_values[2 * UndoLog::kFloats] = a.slots[1][i];
    mark(*log.progress, (log.base + i) << 1 | 1);
    FtrlAnyPowerStep(c, a, i);
    mark(*log.progress, (log.base + i + 1) << 1);
  }
}

}  // namespace elasticdl::optim::internal
#endif  // HWY_ONCE
