#include "ps_logs.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"

namespace elasticdl::master {
namespace {

constexpr size_t kRunDigits = 16;

bool IsRun(const std::string& name) {
  return name.size() == kRunDigits &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return absl::ascii_isxdigit(c); });
}

}  // namespace

std::string NewRun() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

absl::Status RemoveOtherPsLogs(const std::string& dir, const std::string& run) {
  if (!FileExists(dir)) return absl::OkStatus();
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             ListDirectory(dir));
  for (const std::string& name : names) {
    if (!IsRun(name) || name == run) continue;
    ELASTICDL_RETURN_IF_ERROR(RemoveTree(JoinPath(dir, name)));
  }
  return absl::OkStatus();
}

absl::Status RemovePsLogs(const std::string& dir, const std::string& run) {
  if (!IsRun(run)) return absl::OkStatus();
  return RemoveTree(JoinPath(dir, run));
}

}  // namespace elasticdl::master
