#include "prediction_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::master {
namespace {

constexpr char kPrefix[] = "predictions-worker-";

// The worker whose file it is, if it is one.
std::optional<int64_t> WorkerOf(absl::string_view name) {
  int64_t id = 0;
  if (!absl::ConsumePrefix(&name, kPrefix) ||
      !absl::ConsumeSuffix(&name, ".csv") || !absl::SimpleAtoi(name, &id)) {
    return std::nullopt;
  }
  return id;
}

absl::Status CutTo(const std::string& path, int64_t bytes) {
  struct stat file;
  if (stat(path.c_str(), &file) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("stat ", path));
  }
  if (file.st_size <= bytes) return absl::OkStatus();
  LogInfo("cutting ", path, " from ", file.st_size, " to ", bytes,
          " bytes: its worker did not report the rest");
  if (truncate(path.c_str(), bytes) == 0) return absl::OkStatus();
  return ErrnoToStatus(errno, absl::StrCat("truncate ", path));
}

}  // namespace

absl::Status RemovePredictions(const std::string& dir) {
  if (!IsDirectory(dir)) return absl::OkStatus();
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             ListDirectory(dir));
  for (const std::string& name : names) {
    if (!WorkerOf(name).has_value()) continue;
    LogInfo("removing ", name, " of an earlier job from ", dir);
    ELASTICDL_RETURN_IF_ERROR(RemoveTree(JoinPath(dir, name)));
  }
  return absl::OkStatus();
}

absl::Status CutPredictions(const std::string& dir,
                            const std::map<int64_t, int64_t>& reported) {
  const bool written =
      std::any_of(reported.begin(), reported.end(),
                  [](const auto& entry) { return entry.second > 0; });
  if (!written || !IsDirectory(dir)) return absl::OkStatus();
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             ListDirectory(dir));
  for (const std::string& name : names) {
    const std::optional<int64_t> id = WorkerOf(name);
    if (!id.has_value()) continue;
    const auto found = reported.find(*id);
    ELASTICDL_RETURN_IF_ERROR(CutTo(
        JoinPath(dir, name), found == reported.end() ? 0 : found->second));
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::master
