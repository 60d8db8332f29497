#include "histogram.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace elasticdl::worker {
namespace {

// Where tensors of a device are seen on the host.
absl::Span<const float> OnHost(const torch::Tensor& tensor,
                               torch::Tensor& copy) {
  copy = tensor.detach().to(torch::kCPU).contiguous();
  return {copy.data_ptr<float>(), static_cast<size_t>(copy.numel())};
}

}  // namespace

v1::Histogram MakeHistogram(const std::string& name,
                            absl::Span<const float> values) {
  v1::Histogram histogram;
  histogram.set_name(name);
  float low = 0;
  float high = 0;
  int64_t num = 0;
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    low = num == 0 ? value : std::min(low, value);
    high = num == 0 ? value : std::max(high, value);
    ++num;
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  histogram.set_num(num);
  histogram.set_min(low);
  histogram.set_max(high);
  histogram.set_sum(sum);
  histogram.set_sum_squares(squares);
  if (num == 0) return histogram;
  const double width =
      (static_cast<double>(high) - low) / static_cast<double>(kHistogramBins);
  const size_t bins = width > 0 ? kHistogramBins : 1;
  // Multiplied, because a division takes longer than all the rest.
  const double scale = width > 0 ? 1 / width : 0;
  std::vector<int64_t> counts(bins);
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    const auto place =
        static_cast<size_t>((static_cast<double>(value) - low) * scale);
    ++counts[std::min(place, bins - 1)];
  }
  for (size_t i = 0; i < bins; ++i) {
    // Not low + bins * width, which rounding may put below the largest value.
    histogram.add_limits(
        i + 1 == bins ? high : low + static_cast<double>(i + 1) * width);
    histogram.add_counts(static_cast<double>(counts[i]));
  }
  return histogram;
}

v1::Histograms MakeHistograms(Replica& replica) {
  FlatParameters& flat = replica.parameters();
  torch::Tensor copies[2];
  const absl::Span<const float> weights =
      OnHost(flat.value_tensor(), copies[0]);
  const absl::Span<const float> gradients =
      OnHost(flat.gradient_tensor(), copies[1]);
  v1::Histograms histograms;
  histograms.set_step(replica.step());
  for (const FlatParameters::Slice& slice : flat.slices()) {
    if (static_cast<size_t>(histograms.weights_size()) >= kMaxHistograms) break;
    *histograms.add_weights() =
        MakeHistogram(slice.name, weights.subspan(slice.offset, slice.size));
    *histograms.add_gradients() =
        MakeHistogram(slice.name, gradients.subspan(slice.offset, slice.size));
  }
  return histograms;
}

}  // namespace elasticdl::worker
