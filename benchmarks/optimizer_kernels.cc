// Elements per second of each optimizer's kernel, compared with a
// straightforward loop (same compiler and flags), interleaved in one run.
//
//   optimizer_kernels [elements] [rounds]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "elasticdl/optim.h"

namespace {

using elasticdl::optim::Optimizer;
using elasticdl::optim::OptimizerSpec;

// Aligned to a cache line, like libtorch's tensors.
class Array {
 public:
  Array(size_t n, float value)
      : memory_(static_cast<float*>(
            std::aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64))) {
    std::fill_n(memory_.get(), n, value);
  }
  float* data() { return memory_.get(); }
  float& operator[](size_t i) { return memory_.get()[i]; }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
};

struct Arrays {
  explicit Arrays(size_t n)
      : param(n, 0.5f), grad(n, 0.01f), m(n, 0.0f), v(n, 0.0f) {}
  Array param, grad, m, v;
};

void PlainSgd(Arrays& a, size_t n) {
  for (size_t i = 0; i < n; ++i) a.param[i] -= 0.01f * a.grad[i];
}

void PlainMomentum(Arrays& a, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    a.m[i] = 0.9f * a.m[i] + a.grad[i];
    a.param[i] -= 0.01f * a.m[i];
  }
}

void PlainAdam(Arrays& a, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float g = a.grad[i];
    a.m[i] = 0.9f * a.m[i] + 0.1f * g;
    a.v[i] = 0.999f * a.v[i] + 0.001f * g * g;
    a.param[i] -= 0.001f * a.m[i] / (std::sqrt(a.v[i]) * 1.01f + 1e-8f);
  }
}

void PlainAdagrad(Arrays& a, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    a.m[i] += a.grad[i] * a.grad[i];
    a.param[i] -= 0.01f * a.grad[i] / (std::sqrt(a.m[i]) + 1e-10f);
  }
}

void PlainRmsProp(Arrays& a, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    a.m[i] = 0.99f * a.m[i] + 0.01f * a.grad[i] * a.grad[i];
    a.param[i] -= 0.01f * a.grad[i] / (std::sqrt(a.m[i]) + 1e-8f);
  }
}

double Seconds(const std::function<void()>& body, int repeats) {
  const auto start = std::chrono::steady_clock::now();
  for (int r = 0; r < repeats; ++r) body();
  const std::chrono::duration<double> used =
      std::chrono::steady_clock::now() - start;
  return used.count() / repeats;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Compare(const std::string& text, void (*plain)(Arrays&, size_t), size_t n,
             int rounds) {
  const absl::StatusOr<OptimizerSpec> spec = OptimizerSpec::Parse(text);
  const std::unique_ptr<Optimizer> optimizer = Optimizer::Create(*spec).value();
  Arrays ours(n);
  Arrays theirs(n);
  float* slots[] = {ours.m.data(), ours.v.data()};
  int64_t step = 0;
  const std::function<void()> kernel = [&] {
    optimizer->Apply(ours.param.data(), ours.grad.data(), slots, n,
                     optimizer->learning_rate(), ++step);
  };
  const std::function<void()> loop = [&] { plain(theirs, n); };
  // About 16 M elements per measurement, so that clock resolution does not
  // matter.
  const int repeats = std::max<int>(1, static_cast<int>((1 << 24) / n));
  std::vector<double> kernel_rates, loop_rates, ratios;
  for (int r = 0; r < rounds + 1; ++r) {
    const double k = Seconds(kernel, repeats);
    const double l = Seconds(loop, repeats);
    if (r == 0) continue;  // Warm-up.
    kernel_rates.push_back(static_cast<double>(n) / k);
    loop_rates.push_back(static_cast<double>(n) / l);
    ratios.push_back(l / k);
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("%-26s %9zu %10.0f %10.0f   %5.2f  [%.2f, %.2f]\n", text.c_str(),
              n, Median(kernel_rates) / 1e6, Median(loop_rates) / 1e6,
              Median(ratios), ratios.front(), ratios.back());
}

}  // namespace

int main(int argc, char** argv) {
  const size_t given = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  std::printf("%-26s %9s %10s %10s   %s\n", "optimizer", "elements",
              "kernel M/s", "loop M/s", "ratio  [min, max]");
  // Sizes that fit in the L1 cache, in the L2 cache, and only in memory.
  const std::vector<size_t> sizes =
      given > 0 ? std::vector<size_t>{given}
                : std::vector<size_t>{2000, 20000, 4000000};
  for (const size_t n : sizes) {
    Compare("SGD(lr=0.01)", PlainSgd, n, rounds);
    Compare("SGD(lr=0.01,momentum=0.9)", PlainMomentum, n, rounds);
    Compare("Adam", PlainAdam, n, rounds);
    Compare("Adagrad", PlainAdagrad, n, rounds);
    Compare("RMSprop", PlainRmsProp, n, rounds);
  }
  return 0;
}
