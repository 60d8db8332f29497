// Default destination of predictions: one CSV file per worker.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/model/types.h"

namespace elasticdl::worker {

// Thread-compatible. Rows `shard,record,<output 0>,<output 1>…`; the rows of a
// task reach the file together (Flush). Rows that a worker had written but not
// reported when it died are removed by the master, which knows the reported
// length. Outputs with a name have it in the header.
class PredictionWriter {
 public:
  // Writes <dir>/predictions-worker-<id>.csv anew: ids are never used twice in
  // a job, and the master removes what an earlier job left.
  static absl::StatusOr<PredictionWriter> Open(const std::string& dir,
                                               int64_t worker_id);
  // INVALID_ARGUMENT when the outputs do not have one row per record.
  absl::Status Add(const std::string& shard,
                   const std::vector<int64_t>& records, const Outputs& outputs);
  absl::Status Flush();
  // The length of the file.
  int64_t bytes() const { return bytes_; }

 private:
  Fd fd_;
  std::string path_;
  std::string pending_;
  int64_t bytes_ = 0;
  bool header_written_ = false;
};

}  // namespace elasticdl::worker
