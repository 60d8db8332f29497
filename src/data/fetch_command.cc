#include "fetch_command.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "elasticdl/process.h"

namespace elasticdl::data::internal {
namespace {

// Of a command's output, in a message.
constexpr size_t kShownOutputBytes = 500;
// What a shell says of a program that it does not find.
constexpr int kNotFoundExitCode = 127;
// A package of some megabytes over a slow line.
constexpr absl::Duration kDownloadTimeout = absl::Minutes(30);

}  // namespace

absl::Status RunCommand(const std::vector<std::string>& command,
                        const std::string& folder) {
  absl::Status not_installed = absl::FailedPreconditionError(
      absl::StrCat(command.front(), " is not installed"));
  process::RunOptions options;
  options.argv = command;
  options.folder = folder;
  options.timeout = kDownloadTimeout;
  const absl::StatusOr<process::RunResult> result = process::Run(options);
  if (absl::IsNotFound(result.status())) return not_installed;
  if (!result.ok()) return result.status();
  if (result->code == kNotFoundExitCode) return not_installed;
  if (result->code == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "'", absl::StrJoin(command, " "), "' failed with ", result->HowItEnded(),
      ": ",
      process::LastWords(absl::StrCat(result->output, result->error),
                         kShownOutputBytes)));
}

}  // namespace elasticdl::data::internal
