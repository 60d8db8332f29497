// The output of `elasticdl doctor`: one line for each thing that a job may
// need.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::cli {

struct Finding {
  enum class State {
    kOk,
    // Missing, but only some jobs need it.
    kNote,
    // Jobs will fail or be slow.
    kProblem,
  };
  State state = State::kOk;
  // "shared memory".
  std::string name;
  // What was found.
  std::string detail;
  // What to do about it; for kNote and kProblem.
  std::string advice;
};

// Lines for people; the name of each state comes first.
std::string DescribeFindings(const std::vector<Finding>& findings);
// The same, one JSON object per line: `elasticdl-cluster doctor` hands its
// findings to `elasticdl doctor` like this. Lines that are none are left out.
std::string FindingsToJson(const std::vector<Finding>& findings);
std::vector<Finding> FindingsFromJson(const std::string& text);
bool HasProblem(const std::vector<Finding>& findings);

}  // namespace elasticdl::cli
