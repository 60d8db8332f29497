#include "initial_rows.h"

#include <algorithm>

#include "elasticdl/common/status.h"
#include "elasticdl/ps/bucket.h"

namespace elasticdl::worker {

absl::StatusOr<InitialRows> InitialRows::Of(const ShardedTable& table,
                                            uint64_t seed) {
  InitialRows rows;
  ELASTICDL_ASSIGN_OR_RETURN(rows.initializer_,
                             ps::Initializer::Parse(table.initializer));
  rows.seed_ = seed;
  rows.hash_ = ps::HashName(table.name);
  rows.dim_ = static_cast<size_t>(table.dim);
  rows.zero_row_ = table.zero_row;
  return rows;
}

void InitialRows::Fill(int64_t id, float* values) const {
  if (id == zero_row_) {
    std::fill_n(values, dim_, 0.0F);
    return;
  }
  initializer_.Fill(seed_, ps::HashRow(hash_, id), values, dim_);
}

}  // namespace elasticdl::worker
