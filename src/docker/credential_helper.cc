#include "credential_helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "json_field.h"

namespace elasticdl::docker {
namespace {

// What helpers print when they have no entry, since the first of them.
constexpr char kNoEntry[] = "credentials not found";
constexpr size_t kMaxAnswerBytes = 1 << 20;

struct Pipe {
  Fd read_end;
  Fd write_end;
};

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoToStatus(errno, "pipe");
  Pipe result;
  result.read_end.Reset(fds[0]);
  result.write_end.Reset(fds[1]);
  return result;
}

absl::StatusOr<std::string> FindHelper(const std::string& program,
                                       const std::string& path) {
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    const std::string file = JoinPath(folder.empty() ? "." : folder, program);
    if (access(file.c_str(), X_OK) == 0 && !IsDirectory(file)) return file;
  }
  return absl::NotFoundError(absl::StrCat(
      program, ", which the Docker configuration names, is not in the PATH"));
}

// Owns a started process: kills it unless it was waited for.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    Wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  // The status as of waitpid.
  int Wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_;
};

absl::StatusOr<pid_t> Spawn(const std::string& file, int input, int output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  std::string name = file;
  std::string command = "get";
  char* argv[] = {name.data(), command.data(), nullptr};
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, file.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ErrnoToStatus(error, absl::StrCat("start ", file));
  return pid;
}

absl::StatusOr<std::string> ReadUntil(int fd, absl::Time deadline) {
  std::string text;
  char buffer[4096];
  while (true) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    pollfd wait = {fd, POLLIN, 0};
    const int ready =
        poll(&wait, 1, static_cast<int>(std::max<int64_t>(0, left)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return absl::UnavailableError("it does not answer");
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoToStatus(errno, "read its answer");
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kMaxAnswerBytes) {
      return absl::UnavailableError("its answer does not end");
    }
  }
}

absl::StatusOr<HelperAnswer> Parse(const std::string& text, int status) {
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    if (absl::StrContains(text, kNoEntry)) return HelperAnswer();
    // Without success its output is a message and no secret.
    return absl::UnavailableError(absl::StripAsciiWhitespace(text));
  }
  const auto root = nlohmann::json::parse(text, nullptr, false);
  if (!root.is_object()) return absl::UnavailableError("it gave no JSON");
  HelperAnswer answer;
  answer.user = StringField(root, "Username");
  answer.secret = StringField(root, "Secret");
  return answer;
}

}  // namespace

absl::StatusOr<HelperAnswer> AskCredentialHelper(const std::string& helper,
                                                 const std::string& server,
                                                 const std::string& path,
                                                 absl::Duration timeout) {
  const std::string program = absl::StrCat("docker-credential-", helper);
  if (absl::StrContains(helper, '/')) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", helper, "' is not the name of a credential helper"));
  }
  ELASTICDL_ASSIGN_OR_RETURN(const std::string file, FindHelper(program, path));
  ELASTICDL_ASSIGN_OR_RETURN(Pipe input, MakePipe());
  ELASTICDL_ASSIGN_OR_RETURN(Pipe output, MakePipe());
  // Written before the helper runs, so that no SIGPIPE can come of it; it fits
  // the pipe's buffer.
  ELASTICDL_RETURN_IF_ERROR(
      WriteAll(input.write_end.get(), absl::StrCat(server, "\n"), program));
  input.write_end.Reset();
  ELASTICDL_ASSIGN_OR_RETURN(const pid_t pid, Spawn(file, input.read_end.get(),
                                                    output.write_end.get()));
  Child child(pid);
  output.write_end.Reset();
  const absl::StatusOr<std::string> text =
      ReadUntil(output.read_end.get(), absl::Now() + timeout);
  const std::string what = absl::StrCat(program, " get ", server);
  if (!text.ok()) return Annotate(text.status(), what);
  absl::StatusOr<HelperAnswer> answer = Parse(*text, child.Wait());
  if (!answer.ok()) return Annotate(answer.status(), what);
  return answer;
}

}  // namespace elasticdl::docker
