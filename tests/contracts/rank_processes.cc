#include "contracts/rank_processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

constexpr int kHangMilliseconds = 60000;
constexpr size_t kMessageBytes = 128 << 10;

std::pair<Fd, Fd> MakePair() {
  int fds[2];
  // Keeps the bounds of messages.
  ELASTICDL_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) ==
                  0);
  return {Fd(fds[0]), Fd(fds[1])};
}

}  // namespace

absl::Status Channel::Send(const std::string& message) {
  // A first byte, because an empty message looks like the end.
  const std::string framed = "m" + message;
  const ssize_t sent =
      send(fd_.get(), framed.data(), framed.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(framed.size())) {
    return ErrnoToStatus(errno, "send to the test");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Channel::Receive() {
  pollfd ready = {fd_.get(), POLLIN, 0};
  if (poll(&ready, 1, kHangMilliseconds) != 1) {
    return absl::DeadlineExceededError("no message for a minute");
  }
  std::string framed(kMessageBytes, '\0');
  const ssize_t received = recv(fd_.get(), framed.data(), framed.size(), 0);
  if (received <= 0) return absl::UnavailableError("the other end is gone");
  return framed.substr(1, static_cast<size_t>(received) - 1);
}

RankProcesses::RankProcesses(int count, const Body& body) {
  for (int rank = 0; rank < count; ++rank) {
    std::pair<Fd, Fd> ends = MakePair();
    const pid_t pid = fork();
    ELASTICDL_CHECK(pid >= 0);
    if (pid == 0) {
      // A killed test leaves no ranks behind.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      // Else the test would not see the others' ends.
      ends.first.Reset();
      ranks_.clear();
      Channel test(std::move(ends.second));
      const std::string result = body(rank, test);
      const bool sent = test.Send("result" + result).ok();
      _exit(sent && result.empty() ? 0 : 1);
    }
    ranks_.push_back({pid, Channel(std::move(ends.first))});
  }
}

RankProcesses::~RankProcesses() {
  for (const Rank& rank : ranks_) {
    if (rank.pid <= 0) continue;
    kill(rank.pid, SIGKILL);
    waitpid(rank.pid, nullptr, 0);
  }
}

void RankProcesses::Signal(int rank, int signal) {
  if (ranks_[rank].pid > 0) kill(ranks_[rank].pid, signal);
}

absl::Status RankProcesses::Exchange(const std::vector<int>& ranks) {
  std::vector<std::string> messages;
  for (const int rank : ranks) {
    ELASTICDL_ASSIGN_OR_RETURN(std::string message, channel(rank).Receive());
    messages.push_back(std::move(message));
  }
  for (const int rank : ranks) {
    for (const std::string& message : messages) {
      ELASTICDL_RETURN_IF_ERROR(channel(rank).Send(message));
    }
    ELASTICDL_RETURN_IF_ERROR(channel(rank).Send("end of exchange"));
  }
  return absl::OkStatus();
}

std::string RankProcesses::Result(int rank) {
  std::string text;
  while (text.rfind("result", 0) != 0) {
    const absl::StatusOr<std::string> message = channel(rank).Receive();
    if (!message.ok()) {
      text = std::string(message.status().message());
      break;
    }
    text = *message;
  }
  if (text.rfind("result", 0) == 0) {
    text = text.substr(6);
  } else if (text == "no message for a minute") {
    kill(ranks_[rank].pid, SIGKILL);
    text = "hangs";
  }
  int status = 0;
  waitpid(ranks_[rank].pid, &status, 0);
  ranks_[rank].pid = 0;
  if (WIFSIGNALED(status)) {
    return absl::StrCat(text == "hangs" ? "hangs; " : "", "died of signal ",
                        WTERMSIG(status));
  }
  return text;
}

absl::StatusOr<std::vector<std::string>> ExchangeWithAll(
    Channel& test, const std::string& own) {
  ELASTICDL_RETURN_IF_ERROR(test.Send(own));
  std::vector<std::string> all;
  while (true) {
    ELASTICDL_ASSIGN_OR_RETURN(std::string message, test.Receive());
    if (message == "end of exchange") return all;
    all.push_back(std::move(message));
  }
}

}  // namespace elasticdl::collective
