// The checks of `elasticdl doctor`. To add one, write a function and put it
// into the list of AllChecks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "doctor/finding.h"
#include "elasticdl/process.h"

namespace elasticdl::cli {

// What the checks look at; tests have a machine of their own.
struct DoctorHost {
  // Where the programs of this installation are.
  std::string program_dir;
  std::string state_dir;
  std::string cache_dir;
  // Where /dev and /proc are: "/" as a rule.
  std::string root = "/";
  // Runs a program with a deadline of some seconds.
  std::function<absl::StatusOr<process::RunResult>(
      const std::vector<std::string>& argv)>
      run;
  // Free bytes on the file system of a path.
  std::function<absl::StatusOr<int64_t>(const std::string& path)> free_bytes;
  int cores = 1;
  bool cluster_configured = false;
};
DoctorHost RealHost();

using Check = std::function<std::vector<Finding>(const DoctorHost&)>;
const std::vector<Check>& AllChecks();
std::vector<Finding> RunChecks(const DoctorHost& host);

// elasticdl doctor.
int RunDoctor(const std::vector<std::string>& args);

}  // namespace elasticdl::cli
