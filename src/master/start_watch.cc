#include "start_watch.h"

#include <algorithm>

namespace elasticdl::master {
namespace {

// So many may be killed by somebody who tries the elasticity of a job.
constexpr int64_t kAtLeast = 20;
// Two tries for each worker, or this long after the first.
constexpr int64_t kTries = 2;
constexpr absl::Duration kLongTime = absl::Minutes(10);

}  // namespace

bool StartWatch::OnWorkerKilled(absl::Time now, int64_t num_workers) {
  if (killed_++ == 0) first_ = now;
  if (killed_ < kAtLeast) return false;
  return killed_ >= kTries * num_workers || now - first_ >= kLongTime;
}

}  // namespace elasticdl::master
