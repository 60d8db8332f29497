#include "elasticdl/metric.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"

namespace elasticdl::metric {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

absl::Status WrongLength(absl::string_view kind, size_t length,
                         absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("metric of kind '", kind,
                                                 "' has ", length,
                                                 " sums, expected ", expected));
}

double Mean(absl::Span<const double> sums) {
  return sums[1] == 0 ? kNoValue : sums[0] / sums[1];
}

// The area under the ROC curve by the trapezoid rule: from the highest
// threshold down, each bin moves the curve right by its negatives and up by its
// positives; within a bin they are assumed to be mixed evenly.
double AreaUnderCurve(absl::Span<const double> sums) {
  const size_t bins = sums.size() / 2;
  const auto positives = sums.first(bins);
  const auto negatives = sums.last(bins);
  double area = 0;
  double positives_above = 0;
  double num_negatives = 0;
  for (size_t i = bins; i-- > 0;) {
    area += negatives[i] * (positives_above + positives[i] / 2);
    positives_above += positives[i];
    num_negatives += negatives[i];
  }
  if (positives_above == 0 || num_negatives == 0) return kNoValue;
  return area / positives_above / num_negatives;
}

}  // namespace

absl::StatusOr<double> Value(absl::string_view kind,
                             absl::Span<const double> sums) {
  if (kind == kMean || kind == kSqrtMean) {
    if (sums.size() != 2) return WrongLength(kind, sums.size(), "2");
    const double mean = Mean(sums);
    return kind == kMean ? mean : std::sqrt(mean);
  }
  if (kind == kSum) {
    if (sums.size() != 1) return WrongLength(kind, sums.size(), "1");
    return sums[0];
  }
  if (kind == kAuc) {
    if (sums.empty() || sums.size() % 2 != 0) {
      return WrongLength(kind, sums.size(), "an even number above 0");
    }
    return AreaUnderCurve(sums);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("metric of unknown kind '", kind, "'"));
}

}  // namespace elasticdl::metric
