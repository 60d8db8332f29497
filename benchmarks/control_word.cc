// What the control word costs in a step on a device: the word goes there from
// pinned memory, the loss is put in, and the summed word comes back. Compared
// with a step that only waits for the device. Run it on a GPU, or with
// LD_PRELOAD=build/gpu-doubles/libelasticdl_test_device.so.
#include "elasticdl/elastic/control_word.h"

#include <torch/cuda.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "device_stream.h"

namespace elasticdl::worker {
namespace {

constexpr int kRounds = 2000;

// The median time of f() in microseconds.
template <typename F>
double Measure(const F& f) {
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double, std::micro> took =
        std::chrono::steady_clock::now() - begin;
    times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

void Compare(c10::Device device, int members) {
  const auto size = static_cast<int64_t>(elastic::ControlWordSize(members));
  const auto pinned = torch::TensorOptions(torch::kFloat32).pinned_memory(true);
  const auto there = torch::TensorOptions(torch::kFloat32).device(device);
  const torch::Tensor outgoing = torch::zeros({size}, pinned);
  const torch::Tensor incoming = torch::zeros({size}, pinned);
  const torch::Tensor word = torch::zeros({size}, there);
  const torch::Tensor loss = torch::zeros({1}, there);
  const c10::Stream stream = CurrentStream(device);
  elastic::MemberWord mine;
  mine.records = 64;
  // A kernel each, so that there is something to wait for.
  const double wait = Measure([&] {
    loss.add_(1);
    Synchronize(stream);
  });
  const double with_word = Measure([&] {
    loss.add_(1);
    elastic::FillControlWord(mine, 0, members, outgoing.data_ptr<float>());
    word.copy_(outgoing, /*non_blocking=*/true);
    word.narrow(0, static_cast<int64_t>(elastic::LossSumIndex(0)), 1)
        .copy_(loss);
    incoming.copy_(word, /*non_blocking=*/true);
    Synchronize(stream);
    elastic::ReadControlWord(incoming.data_ptr<float>(), members);
  });
  std::printf("%7d %8.1f %8.1f %8.1f\n", members, wait, with_word,
              with_word - wait);
}

int Main() {
  if (!torch::cuda::is_available()) {
    std::fprintf(stderr, "there is no GPU, or libtorch is without CUDA\n");
    return 1;
  }
  const torch::NoGradGuard no_grad;
  std::printf("microseconds, medians of %d\n", kRounds);
  std::printf("members     wait     word   costs\n");
  for (const int members : {1, 8, 64, 1024}) {
    Compare(c10::Device(c10::kCUDA, 0), members);
  }
  return 0;
}

}  // namespace
}  // namespace elasticdl::worker

int main() { return elasticdl::worker::Main(); }
