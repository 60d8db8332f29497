// Makes the embedding tables of a checkpoint fit a network: one that keeps them
// on parameter servers has rows by id, any other has one parameter per table.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "elasticdl/checkpoint/snapshot.h"
#include "elasticdl/model/sharding.h"

namespace elasticdl::worker {

// For a network with sharded tables: a parameter with the name of a table
// becomes rows with the ids 0, 1, … Nothing is copied. FAILED_PRECONDITION for
// a table whose ids may be anything: without servers they were hashed.
absl::Status SplitTables(const std::vector<ShardedTable>& tables,
                         checkpoint::Loaded& loaded);

// For a network in which they are parameters: rows become one, unless the
// checkpoint has it already. Rows that are not in the checkpoint get the
// initial values that follow from `seed`, as on a server, and in `slots` (name,
// initial value) theirs. FAILED_PRECONDITION for a table whose ids may be
// anything.
absl::Status JoinTables(const std::vector<ShardedTable>& tables, uint64_t seed,
                        const std::vector<std::pair<std::string, float>>& slots,
                        checkpoint::Loaded& loaded);

}  // namespace elasticdl::worker
