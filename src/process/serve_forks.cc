// The server's end of a fork server, and the first moments of its processes.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/end_as_killed.h"
#include "elasticdl/common/file.h"
#include "elasticdl/fork_server.h"
#include "fork_wire.h"
#include "orphan.h"

namespace elasticdl::process {
namespace {

// Where the kernel looks for the command line. The environment behind it stays:
// libraries may point into it.
class Title {
 public:
  explicit Title(char** argv) : begin_(argv[0]), end_(argv[0]) {
    for (char** text = argv; *text != nullptr && *text == end_; ++text) {
      end_ = *text + std::strlen(*text) + 1;
    }
  }

  // As much of it as there is room for.
  void Set(const std::vector<std::string>& argv) {
    const std::string text = absl::StrJoin(argv, absl::string_view("\0", 1));
    const auto room = static_cast<size_t>(end_ - begin_);
    std::memset(begin_, 0, room);
    std::memcpy(begin_, text.data(), std::min(text.size(), room - 1));
  }

 private:
  char* const begin_;
  char* end_;
};

struct Request {
  ForkRequest message;
  Fd log;
};

// False when there is no other end any more, or when it sends nonsense.
bool Receive(int socket, std::string* buffer, Request* request) {
  iovec data = {buffer->data(), buffer->size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return false;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
  request->log = Fd(fd);
  return DecodeForkRequest(buffer->substr(0, static_cast<size_t>(got)),
                           &request->message);
}

class Server {
 public:
  Server(int socket, char** argv) : socket_(socket), title_(argv) {}

  // False in a new process, which is to run `request`.
  bool Serve(Request* request);
  // In a new process: its environment, files and name.
  void Become(Request* request);

 private:
  // In the new process: waits until it may go on as a child of `parent`.
  bool FirstMoments(pid_t parent, const Orphan& self);

  const int socket_;
  const pid_t parent_ = getppid();
  Title title_;
  std::vector<std::string> environment_;
  std::vector<char*> pointers_;
};

bool Server::Serve(Request* request) {
  // A process may be killed before it is told to go on.
  signal(SIGPIPE, SIG_IGN);
  std::string buffer(kMostForkBytes, '\0');
  while (true) {
    *request = Request();
    if (!Receive(socket_, &buffer, request)) return true;
    ForkAnswer answer = {request->message.request, 0, 0};
    const pid_t parent = request->message.parent;
    // It goes to the server's parent or one above it.
    const Orphan orphan = ForkOrphan();
    if (orphan.pid == 0) {
      if (!FirstMoments(parent != 0 ? parent : parent_, orphan)) {
        // It has not failed: others have died.
        EndAsKilled();
      }
      return false;
    }
    if (orphan.pid < 0) {
      answer.error = errno;
    } else {
      answer.pid = orphan.pid;
    }
    // The process goes on once its number is known to those who can kill it.
    const bool told = send(socket_, &answer, sizeof(answer), MSG_NOSIGNAL) > 0;
    if (told && orphan.pid > 0) LetGo(orphan);
  }
}

bool Server::FirstMoments(pid_t parent, const Orphan& self) {
  signal(SIGPIPE, SIG_DFL);
  close(socket_);
  return AwaitGo(self) && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
         getppid() == parent;
}

void Server::Become(Request* request) {
  dup2(request->log.get(), 1);
  dup2(request->log.get(), 2);
  request->log.Reset();
  environment_ = std::move(request->message.environment);
  for (std::string& entry : environment_) pointers_.push_back(entry.data());
  pointers_.push_back(nullptr);
  environ = pointers_.data();
  title_.Set(request->message.argv);
}

}  // namespace

bool IsForkServer(const char* argument, int* fd) {
  absl::string_view rest = argument;
  return absl::ConsumePrefix(&rest, kForkServerFlag) &&
         absl::SimpleAtoi(rest, fd);
}

int ServeForks(int fd, char** argv,
               const std::function<int(const std::vector<std::string>&)>& run) {
  Server server(fd, argv);
  Request request;
  if (server.Serve(&request)) return 0;
  server.Become(&request);
  std::vector<std::string>& args = request.message.argv;
  if (!args.empty()) args.erase(args.begin());
  // Not back to main: the environment is in `server`.
  std::exit(run(args));
}

}  // namespace elasticdl::process
