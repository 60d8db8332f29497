// elasticdl top, scale, stop and logs for a job wherever it is (job_handle.h),
// and lists of jobs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/flags/flag_set.h"
#include "job_handle.h"

namespace elasticdl::cli {

// The flags that select a job.
struct JobChoice {
  std::string job_name;
  std::string state_dir;
  // "" = not given.
  std::string name_space;
  bool force_use_kube_config_file = false;

  JobChoice();
  void AddTo(flags::FlagSet* set, bool with_name = true);
};

// NOT_FOUND and FAILED_PRECONDITION name the jobs to choose from.
using JobFinder =
    std::function<absl::StatusOr<std::unique_ptr<JobHandle>>(const JobChoice&)>;

// Each parses its flags, finds the job and returns the exit code.
int TopCommand(const std::vector<std::string>& args, const JobFinder& find);
int ScaleCommand(const std::vector<std::string>& args, const JobFinder& find);
int StopCommand(const std::vector<std::string>& args, const JobFinder& find);
int LogsCommand(const std::vector<std::string>& args, const JobFinder& find);

// One line of a list.
struct JobSummary {
  std::string job;
  std::string state;
  std::string reason;
  // Name and value of where it is: "dir" or "namespace".
  std::string place_kind;
  std::string place;
};
// A line each, running ones first; `header`: below a line with the names of the
// columns.
std::string FormatJobs(std::vector<JobSummary> jobs, bool header);
// Prints them as text, with a header on a terminal, or as a JSON array; `none`
// is printed if there are none.
void PrintJobs(std::vector<JobSummary> jobs, bool json,
               const std::string& none);

// A signal to a process of a pod on this machine. INVALID_ARGUMENT: a number
// that no pod has.
absl::Status SignalPod(int64_t pid, int signal);

// Prints "elasticdl top: <error>" to stderr and returns the exit code 1.
int Fail(const flags::FlagSet& set, const absl::Status& status);

}  // namespace elasticdl::cli
