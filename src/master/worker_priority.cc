#include "worker_priority.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace elasticdl::master {

absl::StatusOr<WorkerPriority> ParseWorkerPriority(const std::string& text) {
  WorkerPriority priority;
  absl::string_view number = text;
  const bool explicit_fraction = absl::ConsumePrefix(&number, "high=");
  double fraction = 0;
  if (!absl::SimpleAtod(number, &fraction)) {
    if (explicit_fraction || absl::StrContains(text, '=')) {
      return absl::InvalidArgumentError(absl::StrCat(
          "worker pod priority '", text,
          "': expected a class name, a fraction such as 0.5, or high=0.5"));
    }
    priority.all = text;
    return priority;
  }
  // Negated, so that NaN is refused too.
  if (!(fraction >= 0 && fraction <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker pod priority '", text, "': the fraction is not in [0, 1]"));
  }
  priority.high_fraction = fraction;
  return priority;
}

int64_t NumHighPriority(int64_t num_workers, double fraction) {
  // A rounding error must not turn 10 * 0.7 into 8.
  const double exact = static_cast<double>(num_workers) * fraction;
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(exact - 1e-9)), 0,
                             num_workers);
}

std::set<int64_t> HighPrioritySlots(int64_t num_workers, double fraction) {
  std::set<int64_t> slots;
  const int64_t count = NumHighPriority(num_workers, fraction);
  for (int64_t i = 0; i < count; ++i) {
    slots.insert(i % 2 == 0 ? i / 2 : num_workers - 1 - i / 2);
  }
  return slots;
}

}  // namespace elasticdl::master
