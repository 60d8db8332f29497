// Metrics as sums. Workers compute sums over their records; the master adds up
// the workers' sums and computes one value. Raw model outputs are never sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace elasticdl::metric {

// Kinds, and what their sums are:
//   mean       {sum of values, number of values}       -> sum / number
//   sqrt_mean  the same                                -> sqrt(sum / number)
//   sum        {sum}
//   auc        2 * bins counts: positives by bin of the predicted
//              probability (ascending), then negatives -> area under ROC
inline constexpr absl::string_view kMean = "mean";
inline constexpr absl::string_view kSqrtMean = "sqrt_mean";
inline constexpr absl::string_view kSum = "sum";
inline constexpr absl::string_view kAuc = "auc";

// The value of the metric, given its total sums. INVALID_ARGUMENT for an
// unknown kind or a wrong number of sums. Without data (number 0, no positives
// or no negatives): NaN.
absl::StatusOr<double> Value(absl::string_view kind,
                             absl::Span<const double> sums);

}  // namespace elasticdl::metric
