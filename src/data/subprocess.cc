// See subprocess.h.
#include "subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"

namespace elasticdl::data::internal {
namespace {

constexpr size_t kShownOutputBytes = 500;
constexpr int kNotFoundExitCode = 127;

// Owns the list of what the child does before it starts the program.
struct FileActions {
  posix_spawn_file_actions_t actions;
  FileActions() { posix_spawn_file_actions_init(&actions); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
};

std::string LastOutput(const std::string& log) {
  const auto text = ReadFile(log);
  if (!text.ok()) return "";
  const size_t begin =
      text->size() > kShownOutputBytes ? text->size() - kShownOutputBytes : 0;
  return std::string(absl::StripAsciiWhitespace(text->substr(begin)));
}

absl::Status NotInstalled(const std::string& program) {
  return absl::FailedPreconditionError(
      absl::StrCat(program, " is not installed"));
}

absl::Status WaitFor(pid_t pid, const std::vector<std::string>& command,
                     const std::string& log) {
  int result = 0;
  while (waitpid(pid, &result, 0) < 0) {
    if (errno != EINTR) return ErrnoToStatus(errno, "wait for a command");
  }
  if (WIFEXITED(result) && WEXITSTATUS(result) == 0) return absl::OkStatus();
  if (WIFEXITED(result) && WEXITSTATUS(result) == kNotFoundExitCode) {
    return NotInstalled(command.front());
  }
  return absl::UnavailableError(absl::StrCat(
      "'", absl::StrJoin(command, " "), "' failed",
      WIFEXITED(result) ? absl::StrCat(" with exit code ", WEXITSTATUS(result))
                        : absl::StrCat(" by signal ", WTERMSIG(result)),
      ": ", LastOutput(log)));
}

}  // namespace

absl::Status RunCommand(const std::vector<std::string>& command,
                        const std::string& folder) {
  const std::string log = JoinPath(folder, "command.log");
  FileActions child;
  posix_spawn_file_actions_addopen(&child.actions, STDIN_FILENO, "/dev/null",
                                   O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&child.actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&child.actions, STDOUT_FILENO,
                                   STDERR_FILENO);
  posix_spawn_file_actions_addchdir_np(&child.actions, folder.c_str());
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &child.actions, nullptr,
                                 argv.data(), environ);
  if (error == ENOENT) return NotInstalled(command.front());
  if (error != 0) {
    return ErrnoToStatus(error, absl::StrCat("start ", command.front()));
  }
  return WaitFor(pid, command, log);
}

}  // namespace elasticdl::data::internal
