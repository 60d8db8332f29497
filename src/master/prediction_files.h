// The files in which workers leave their predictions, as the master sees them
// (docs/formats.md, "Predictions").
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace elasticdl::master {

// Before a job: rows of an earlier one in the same folder would be taken for
// its own. A folder that is not there has none.
absl::Status RemovePredictions(const std::string& dir);

// After a job, when no worker writes any more: cuts each worker's file to the
// length that it has reported (none = 0). What follows are rows of tasks that
// others have done again. Without any report the files, if there are some, are
// not those of workers: the model has a processor of its own.
absl::Status CutPredictions(const std::string& dir,
                            const std::map<int64_t, int64_t>& reported);

}  // namespace elasticdl::master
