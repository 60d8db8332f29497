// The commands of `elasticdl experiment`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/experiment/plan.h"

namespace elasticdl::cli {

// All of `elasticdl experiment`: arguments without the program's name to exit
// code.
int RunExperimentCommands(const std::vector<std::string>& args);

int RunExperimentRun(const std::vector<std::string>& args);
int RunExperimentShow(const std::vector<std::string>& args);
int RunExperimentReport(const std::vector<std::string>& args);
int RunExperimentTrace(const std::vector<std::string>& args);

// Reads and checks a plan, the flags of its jobs included. INVALID_ARGUMENT:
// one line with file and line number.
absl::StatusOr<experiment::Plan> LoadPlan(const std::string& path);

// "elasticdl experiment: …" on stderr; returns `code`.
int ExperimentFailed(const absl::Status& status, int code);

}  // namespace elasticdl::cli
