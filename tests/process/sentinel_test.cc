#include "elasticdl/sentinel.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/process.h"

namespace elasticdl::process {
namespace {

constexpr int kLongMs = 30000;

// Listens on this host for the connection of a process that will be killed.
class MortalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    listening_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(bind(listening_.get(), plain, sizeof(address)), 0);
    ASSERT_EQ(listen(listening_.get(), 1), 0);
    socklen_t size = sizeof(address);
    ASSERT_EQ(getsockname(listening_.get(), plain, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  void StartMortal(int megabytes) {
    Options options;
    options.argv = {MORTAL, absl::StrCat(port_), absl::StrCat(megabytes)};
    const auto process = Start(options);
    ASSERT_TRUE(process.ok()) << process.status();
    connection_.Reset(
        accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(connection_.valid());
    ASSERT_EQ(read(connection_.get(), &pid_, sizeof(pid_)),
              static_cast<ssize_t>(sizeof(pid_)));
    ASSERT_EQ(pid_, process->pid);
    const auto children =
        ReadFile(absl::StrCat("/proc/", pid_, "/task/", pid_, "/children"));
    ASSERT_TRUE(children.ok()) << children.status();
    pid_t sentinel = 0;
    ASSERT_TRUE(
        absl::SimpleAtoi(absl::StripAsciiWhitespace(*children), &sentinel))
        << *children;
    sentinel_ = OpenPidfd(sentinel);
    sentinel_pid_ = sentinel;
  }
  int Wait() const {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  bool SentinelEnds() const {
    pollfd fd = {sentinel_.get(), POLLIN, 0};
    return poll(&fd, 1, kLongMs) == 1;
  }
  bool ConnectionEnds() const {
    pollfd fd = {connection_.get(), POLLIN, 0};
    char byte = 0;
    return poll(&fd, 1, kLongMs) == 1 && read(connection_.get(), &byte, 1) <= 0;
  }
  // While its memory is freed.
  bool Runs() const {
    const Fd pidfd = OpenPidfd(pid_);
    pollfd fd = {pidfd.get(), POLLIN, 0};
    return poll(&fd, 1, 0) == 0;
  }

  Fd listening_;
  Fd connection_;
  int port_ = 0;
  pid_t pid_ = 0;
  Fd sentinel_;
  pid_t sentinel_pid_ = 0;
};

// The memory takes tens of milliseconds to free, and the kernel closes sockets
// microseconds before the end of a process. Only a sentinel that gets no
// processor for so long is later than that.
TEST_F(MortalTest, ConnectionsEndBeforeTheMemoryIsFree) {
  constexpr int kRounds = 20;
  int earlier = 0;
  for (int round = 0; round < kRounds && earlier < 3; ++round) {
    ASSERT_NO_FATAL_FAILURE(StartMortal(400));
    kill(pid_, SIGKILL);
    ASSERT_TRUE(ConnectionEnds());
    if (Runs()) ++earlier;
    EXPECT_EQ(Wait(), 128 + SIGKILL);
    EXPECT_TRUE(SentinelEnds());
  }
  EXPECT_EQ(earlier, 3);
}

TEST_F(MortalTest, TheSentinelEndsWithAProcessThatEndsInOrder) {
  ASSERT_NO_FATAL_FAILURE(StartMortal(1));
  ASSERT_EQ(write(connection_.get(), "x", 1), 1);
  EXPECT_EQ(Wait(), 0);
  EXPECT_TRUE(ConnectionEnds());
  EXPECT_TRUE(SentinelEnds());
}

// The process goes on without it, and its connections end with its memory.
TEST_F(MortalTest, WithoutItsSentinelAProcessGoesOn) {
  ASSERT_NO_FATAL_FAILURE(StartMortal(1));
  kill(sentinel_pid_, SIGKILL);
  EXPECT_TRUE(SentinelEnds());
  EXPECT_TRUE(Runs());
  kill(pid_, SIGKILL);
  EXPECT_TRUE(ConnectionEnds());
  EXPECT_EQ(Wait(), 128 + SIGKILL);
}

// One that is stopped must not keep the connections open.
TEST_F(MortalTest, AStoppedSentinelEndsWithItsProcess) {
  ASSERT_NO_FATAL_FAILURE(StartMortal(1));
  kill(sentinel_pid_, SIGSTOP);
  kill(pid_, SIGKILL);
  EXPECT_EQ(Wait(), 128 + SIGKILL);
  EXPECT_TRUE(ConnectionEnds());
  EXPECT_TRUE(SentinelEnds());
}

// Signals are for the process.
TEST_F(MortalTest, TheSentinelIgnoresWhatIsForTheProcess) {
  ASSERT_NO_FATAL_FAILURE(StartMortal(1));
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    EXPECT_EQ(kill(sentinel_pid_, signal), 0);
  }
  kill(pid_, SIGKILL);
  EXPECT_TRUE(ConnectionEnds());
  EXPECT_EQ(Wait(), 128 + SIGKILL);
  EXPECT_TRUE(SentinelEnds());
}

}  // namespace
}  // namespace elasticdl::process
