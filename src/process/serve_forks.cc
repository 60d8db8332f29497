// The server's end of a fork server, and the first moments of its processes.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
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
#include "elasticdl/common/file.h"
#include "elasticdl/fork_server.h"
#include "fork_wire.h"

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

bool ReadAll(int fd, void* to, size_t bytes) {
  ssize_t got;
  do {
    got = read(fd, to, bytes);
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(bytes);
}

struct Pipe {
  Fd read;
  Fd write;
};

bool MakePipe(Pipe* made) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  *made = {Fd(ends[0]), Fd(ends[1])};
  return true;
}

class Server {
 public:
  Server(int socket, char** argv) : socket_(socket), title_(argv) {}

  // False in a new process, which is to run `request`.
  bool Serve(Request* request);
  // In a new process: its environment, files and name.
  void Become(Request* request);

 private:
  // True in the new process. In the server: what to answer.
  bool Fork(pid_t parent, ForkAnswer* answer, Pipe* go);
  // In the new process: waits until it is a child of `parent`.
  bool FirstMoments(pid_t parent, const Pipe& number, Pipe* go);

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
    Pipe go;
    const pid_t parent = request->message.parent;
    if (Fork(parent != 0 ? parent : parent_, &answer, &go)) return false;
    // The process goes on once its number is known to those who can kill it.
    const bool told = send(socket_, &answer, sizeof(answer), MSG_NOSIGNAL) > 0;
    if (told && answer.pid != 0) {
      // One that was killed meanwhile does not hear it.
      WriteAll(go.write.get(), "g", "go").IgnoreError();
    }
  }
}

// The process is forked by one that ends at once: the kernel then gives it to
// the nearest subreaper, which is the server's parent or one above it.
bool Server::Fork(pid_t parent, ForkAnswer* answer, Pipe* go) {
  Pipe number;
  if (!MakePipe(go) || !MakePipe(&number)) {
    answer->error = errno;
    return false;
  }
  const pid_t between = fork();
  if (between < 0) {
    answer->error = errno;
    return false;
  }
  if (between == 0) {
    const pid_t child = fork();
    if (child < 0) _exit(errno);
    if (child > 0) _exit(0);
    if (!FirstMoments(parent, number, go)) {
      // It has not failed: others have died.
      kill(getpid(), SIGKILL);
    }
    return true;
  }
  number.write.Reset();
  go->read.Reset();
  int status = 0;
  while (waitpid(between, &status, 0) < 0 && errno == EINTR) {
  }
  pid_t child = 0;
  if (ReadAll(number.read.get(), &child, sizeof(child))) {
    answer->pid = child;
  } else {
    answer->error = WIFEXITED(status) ? WEXITSTATUS(status) : ECHILD;
  }
  return false;
}

bool Server::FirstMoments(pid_t parent, const Pipe& number, Pipe* go) {
  // From here on its group can be killed.
  setsid();
  signal(SIGPIPE, SIG_DFL);
  close(socket_);
  go->write.Reset();
  const pid_t self = getpid();
  const absl::string_view bytes(reinterpret_cast<const char*>(&self),
                                sizeof(self));
  if (!WriteAll(number.write.get(), bytes, "number").ok()) return false;
  char word = 0;
  // Nothing comes when the server has died: nobody knows of this process.
  if (!ReadAll(go->read.get(), &word, 1)) return false;
  return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
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
