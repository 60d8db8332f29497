// Limits that flags, master and workers must agree on.
#pragma once

#include <cstdint>

namespace elasticdl {

// How many workers can train together. Each step's all-reduce carries a few
// numbers per worker (elasticdl/elastic/control_word.h): 1.75 MiB are reserved
// for them in front of the gradients, and only those of the members are sent.
inline constexpr int kMaxWorldSize = 65536;

// How many records a worker can put into one step. They are counted in a float
// of the control word, which is exact up to this number.
inline constexpr int64_t kMaxRecordsPerStep = (int64_t{1} << 24) - 1;

// How many parameter servers a job can have: as many as there are buckets to
// hold (elasticdl/ps/bucket.h).
inline constexpr int kMaxParameterServers = 1024;

}  // namespace elasticdl
