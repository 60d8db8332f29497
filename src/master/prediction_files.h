// The workers' prediction files (docs/formats.md, "Predictions"); used by the
// master.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace elasticdl::master {

// Before a job: removes rows of an earlier job in the same folder, which would
// be mistaken for its own. The folder may be missing.
absl::Status RemovePredictions(const std::string& dir);

// After a job, when no worker writes any more: cuts each worker's file to the
// length that the worker reported (0 without a report). Rows after that are of
// tasks that others have repeated. If no worker reported anything, the model
// has its own processor, and the files are not changed.
absl::Status CutPredictions(const std::string& dir,
                            const std::map<int64_t, int64_t>& reported);

}  // namespace elasticdl::master
