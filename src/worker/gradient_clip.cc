#include "gradient_clip.h"

#include <cmath>

#include "elasticdl/optim.h"

namespace elasticdl::worker {
namespace {

double SumOfSquares(absl::Span<const float> values) {
  // Several sums, which the compiler may compute side by side.
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (; i < values.size(); ++i) {
    sums[0] += static_cast<double>(values[i]) * values[i];
  }
  double sum = 0;
  for (const double one : sums) sum += one;
  return sum;
}

}  // namespace

double GlobalClipNorm(const std::string& optimizer_spec) {
  const auto spec = optim::OptimizerSpec::Parse(optimizer_spec);
  if (!spec.ok()) return 0;
  const auto found = spec->args.find("global_clipnorm");
  return found == spec->args.end() ? 0 : found->second;
}

void ClipByGlobalNorm(double most, absl::Span<const absl::Span<float>> arrays) {
  double squares = 0;
  for (const absl::Span<float> array : arrays) squares += SumOfSquares(array);
  const double norm = std::sqrt(squares);
  // Not a number stays what it is: whoever gets it refuses it.
  if (!(norm > most)) return;
  const auto factor = static_cast<float>(most / norm);
  for (const absl::Span<float> array : arrays) {
    for (float& value : array) value *= factor;
  }
}

}  // namespace elasticdl::worker
