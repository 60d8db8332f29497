// The initial rows of a table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "elasticdl/model/sharding.h"
#include "elasticdl/ps/initializer.h"

namespace elasticdl::worker {

// They are the same as on a server. A value; thread-safe.
class InitialRows {
 public:
  static absl::StatusOr<InitialRows> Of(const ShardedTable& table,
                                        uint64_t seed);

  // Writes the row of `id`, as many values as the table is wide.
  void Fill(int64_t id, float* values) const;

 private:
  ps::Initializer initializer_;
  uint64_t seed_ = 0;
  uint64_t hash_ = 0;
  size_t dim_ = 0;
  int64_t zero_row_ = -1;
};

}  // namespace elasticdl::worker
