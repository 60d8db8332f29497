// The caller's end of a fork server.
#include "elasticdl/fork_server.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "fork_wire.h"
#include "start_options.h"

namespace elasticdl::process {
namespace {

// Room for the arguments that `ps` shows for the processes.
constexpr size_t kTitleBytes = 1000;

absl::Status Send(int socket, const std::string& bytes, int passed_fd) {
  iovec data = {const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &passed_fd, sizeof(int));
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return ErrnoToStatus(errno, "ask the fork server");
  return absl::OkStatus();
}

// The process is a child of this one, or of one that waits for it when this one
// says so: its number is not taken again before it has been waited for.
absl::StatusOr<Process> Adopt(const ForkAnswer& answer) {
  if (answer.pid == 0) return ErrnoToStatus(answer.error, "fork");
  Process process;
  process.pid = answer.pid;
  process.pidfd = OpenPidfd(answer.pid);
  if (process.pidfd.valid()) return process;
  const absl::Status status =
      ErrnoToStatus(errno, absl::StrCat("pidfd_open ", answer.pid));
  kill(answer.pid, SIGKILL);
  waitpid(answer.pid, nullptr, 0);
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ForkServer>> ForkServer::Start(
    const std::string& program, const std::vector<std::string>& environment,
    pid_t parent) {
  if (parent == 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    return ErrnoToStatus(errno, "prctl PR_SET_CHILD_SUBREAPER");
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoToStatus(errno, "socketpair");
  }
  Fd own(ends[0]);
  const Fd other(ends[1]);
  Options options;
  options.argv = {program, absl::StrCat(kForkServerFlag, other.get()),
                  std::string(kTitleBytes, ' ')};
  options.environment = environment;
  options.keep_fds = {other.get()};
  options.own_session = false;
  ELASTICDL_ASSIGN_OR_RETURN(Process server, process::Start(options));
  return std::unique_ptr<ForkServer>(
      new ForkServer(std::move(server), std::move(own)));
}

ForkServer::ForkServer(Process server, Fd socket)
    : server_(std::move(server)), socket_(std::move(socket)) {}

ForkServer::~ForkServer() { Kill(); }

void ForkServer::Kill() {
  if (reaped_) return;
  kill(server_.pid, SIGKILL);
  while (waitpid(server_.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
}

absl::Status ForkServer::Ask(uint64_t request, const Options& options) {
  if (options.output_fd >= 0 || !options.keep_fds.empty() ||
      !options.die_with_parent) {
    return absl::UnimplementedError("fork server: only die_with_parent");
  }
  ForkRequest message;
  message.request = request;
  message.parent = options.parent;
  message.argv = options.argv;
  message.environment = MergeEnvironment(options.environment);
  ELASTICDL_ASSIGN_OR_RETURN(const Fd log, OpenLog(options));
  const std::string bytes = EncodeForkRequest(message);
  if (bytes.size() > kMostForkBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("ask the fork server: ", bytes.size(),
                     " bytes of arguments and environment"));
  }
  return Send(socket_.get(), bytes, log.get());
}

absl::StatusOr<std::optional<ForkServer::Answer>> ForkServer::Next() {
  ForkAnswer answer;
  ssize_t got;
  do {
    got = recv(socket_.get(), &answer, sizeof(answer), MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof(answer)) {
    return std::optional<Answer>({answer.request, Adopt(answer)});
  }
  if (got < 0 && errno == EAGAIN && !reaped_) {
    return std::optional<Answer>();
  }
  return absl::UnavailableError("the fork server has ended");
}

}  // namespace elasticdl::process
