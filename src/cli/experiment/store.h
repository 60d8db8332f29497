// The folder of an experiment: results of runs, tables, the report.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/experiment/plan.h"
#include "elasticdl/experiment/results.h"

namespace elasticdl::cli {

// Thread-compatible.
class ExperimentStore {
 public:
  // Makes the folder and reads what is there. FAILED_PRECONDITION: another
  // process uses it.
  static absl::StatusOr<ExperimentStore> Open(const std::string& folder);

  // Adds a result to runs.jsonl, which survives this process.
  absl::Status Add(const experiment::RunResult& result);
  // Writes results.csv, results.json, report.html and charts/.
  absl::Status WriteReport(const experiment::Plan& plan) const;

  // For the files of a run. Empty when it is there: of an interrupted try.
  absl::StatusOr<std::string> RunFolder(const std::string& id) const;
  // Of jobs that may be on a cluster. It need not exist.
  std::string NotesFolder() const { return JoinPath(folder_, "on-cluster"); }
  const std::map<std::string, experiment::RunResult>& results() const {
    return results_;
  }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  // Holds the lock.
  Fd lock_;
  LineWriter writer_;
  std::map<std::string, experiment::RunResult> results_;
};

}  // namespace elasticdl::cli
