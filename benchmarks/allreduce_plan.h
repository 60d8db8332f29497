// What the all-reduce benchmark measures, the same for every peer.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace elasticdl::benchmarks {

inline const std::vector<size_t>& AllReduceSizes() {
  // 436 kB and 5 MB are the gradients of the example MLP and CNN.
  // ALLREDUCE_SIZES=4194304,26214400: only these.
  static const auto* const sizes = [] {
    auto* const chosen = new std::vector<size_t>;
    const char* const text = std::getenv("ALLREDUCE_SIZES");
    for (const char* at = text; at != nullptr && *at != 0;) {
      char* end = nullptr;
      chosen->push_back(std::strtoul(at, &end, 10));
      at = *end == ',' ? end + 1 : end + std::strlen(end);
    }
    if (chosen->empty()) {
      *chosen = {4,      64,      1024,    4096,    16384,    65536,    262144,
                 436000, 1048576, 4194304, 5000000, 26214400, 104857600};
    }
    return chosen;
  }();
  return *sizes;
}

// Number of calls per sample: for small sizes about 3 ms worth of calls, so
// that clock resolution and skew between ranks do not matter; fewer if a peer
// is so slow that they would take more than 50 ms.
inline int MostCallsPerSample(size_t bytes) {
  return static_cast<int>(std::max<size_t>(1, 1500000 / (bytes + 3000)));
}
constexpr double kMostSecondsPerSample = 0.05;
inline int Samples(size_t bytes) { return bytes > (10 << 20) ? 5 : 15; }

// Median seconds per call of `all_reduce(data, count)`, on each of `size`
// ranks; `barrier()` before each sample. Prints "<bytes> <seconds>" when
// `print`.
template <typename AllReduce, typename Barrier>
void Measure(bool print, int size, const AllReduce& all_reduce,
             const Barrier& barrier) {
  using Clock = std::chrono::steady_clock;
  for (const size_t bytes : AllReduceSizes()) {
    std::vector<float> data(bytes / sizeof(float), 0);
    const auto seconds_per_call = [&](int calls) {
      barrier();
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < calls; ++i) all_reduce(data.data(), data.size());
      const std::chrono::duration<double> spent = Clock::now() - start;
      return spent.count() / calls;
    };
    const int most = MostCallsPerSample(bytes);
    // Warms up and estimates how many calls fit. The ranks agree on the mean.
    const double first = seconds_per_call(std::max(1, most / 50));
    float wish = static_cast<float>(
        std::max(1.0, std::min<double>(most, kMostSecondsPerSample / first)));
    all_reduce(&wish, 1);
    const int calls =
        std::max(1, static_cast<int>(wish / static_cast<float>(size)));
    std::vector<double> seconds;
    for (int sample = 0; sample < Samples(bytes); ++sample) {
      seconds.push_back(seconds_per_call(calls));
    }
    std::sort(seconds.begin(), seconds.end());
    if (print) std::printf("%zu %.9f\n", bytes, seconds[seconds.size() / 2]);
  }
  std::fflush(stdout);
}

}  // namespace elasticdl::benchmarks
