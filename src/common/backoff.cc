#include "elasticdl/common/backoff.h"

#include <algorithm>

namespace elasticdl {

absl::Duration Backoff::Next() {
  const absl::Duration base = next_;
  next_ = std::min(next_ * options_.factor, options_.max);
  std::uniform_real_distribution<double> scale(1.0 - options_.jitter, 1.0);
  return base * scale(random_);
}

}  // namespace elasticdl
