// Running a process to its end.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/process.h"

namespace elasticdl::process {
namespace {

// Of standard error, in an error's message.
constexpr size_t kShownBytes = 500;

// Unnamed files in memory for all three streams: they take and give any amount
// without a thread at the other end, so that nothing can block on a pipe.
absl::StatusOr<Fd> MemoryFile(const std::string& content) {
  Fd fd(memfd_create("stream", MFD_CLOEXEC));
  if (!fd.valid()) return ErrnoToStatus(errno, "memfd_create");
  ELASTICDL_RETURN_IF_ERROR(WriteAll(fd.get(), content, "memory file"));
  lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

std::string ContentOf(const Fd& fd) {
  return ReadFile(absl::StrCat("/proc/self/fd/", fd.get())).value_or("");
}

// OK when it has ended by itself.
absl::Status WaitFor(const Process& process, const RunOptions& options) {
  const absl::Time deadline = Clock::Real().Now() + options.timeout;
  while (true) {
    const absl::Duration left = deadline - Clock::Real().Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "no answer within ", absl::FormatDuration(options.timeout)));
    }
    pollfd fds[] = {{process.pidfd.get(), POLLIN, 0},
                    {options.cancel_fd, POLLIN, 0}};
    // An infinite timeout is waited for in parts that poll() can count.
    const int64_t ms =
        std::min<int64_t>(absl::ToInt64Milliseconds(left), 600000);
    const int n = poll(fds, 2, static_cast<int>(ms) + 1);
    if (n < 0 && errno != EINTR) return ErrnoToStatus(errno, "poll");
    if (n <= 0) continue;
    if (fds[1].revents != 0) return absl::CancelledError("cancelled");
    if (fds[0].revents != 0) return absl::OkStatus();
  }
}

int ReapExitCode(const Process& process) {
  int status = 0;
  while (waitpid(process.pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

std::vector<std::string> InheritedEnvironment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.emplace_back(*entry);
  }
  return environment;
}

std::string RunResult::HowItEnded() const {
  return code > 128 ? absl::StrCat("signal ", code - 128)
                    : absl::StrCat("exit code ", code);
}

absl::StatusOr<RunResult> Run(const RunOptions& options) {
  ELASTICDL_ASSIGN_OR_RETURN(const Fd input, MemoryFile(options.input));
  ELASTICDL_ASSIGN_OR_RETURN(const Fd output, MemoryFile(""));
  ELASTICDL_ASSIGN_OR_RETURN(const Fd error, MemoryFile(""));
  Options start;
  start.argv = options.argv;
  start.environment = options.environment;
  start.folder = options.folder;
  start.input_fd = input.get();
  start.output_fd = output.get();
  start.error_fd = error.get();
  ELASTICDL_ASSIGN_OR_RETURN(const Process process, Start(start));
  const absl::Status waited = WaitFor(process, options);
  // It leads its own session: whatever it started goes with it.
  if (!waited.ok()) kill(-process.pid, SIGKILL);
  RunResult result;
  result.code = ReapExitCode(process);
  result.error = ContentOf(error);
  if (!waited.ok()) {
    const std::string words = LastWords(result.error, kShownBytes);
    return words.empty()
               ? waited
               : absl::Status(waited.code(),
                              absl::StrCat(waited.message(), ": ", words));
  }
  result.output = ContentOf(output);
  return result;
}

std::string LastWords(absl::string_view text, size_t bytes) {
  text = absl::StripAsciiWhitespace(text);
  if (text.size() > bytes) text.remove_prefix(text.size() - bytes);
  return std::string(text);
}

}  // namespace elasticdl::process
