#include "elasticdl/sentinel.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/process.h"
#include "support/temp_dir.h"

namespace elasticdl::process {
namespace {

constexpr int kLongMs = 30000;
constexpr int kNotStarted = 99;

// A sentinel in a process of its own.
class Sentinel {
 public:
  explicit Sentinel(const std::vector<std::string>& argv) : pid_(fork()) {
    if (pid_ != 0) return;
    const auto code = RunSentinel(argv);
    _exit(code.ok() ? *code : kNotStarted);
  }
  ~Sentinel() {
    Signal(SIGKILL);
    if (!waited_) waitpid(pid_, nullptr, 0);
  }
  void Signal(int signal) { kill(pid_, signal); }
  // As a shell says it.
  int Wait() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    waited_ = true;
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  bool waited_ = false;
  const pid_t pid_;
};

int CodeOf(const std::string& script) {
  return Sentinel({"/bin/sh", "-c", script}).Wait();
}

TEST(SentinelTest, ExitsAsItsProgramDoes) {
  EXPECT_EQ(CodeOf("exit 0"), 0);
  EXPECT_EQ(CodeOf("exit 7"), 7);
  EXPECT_EQ(CodeOf("kill -KILL $$"), 128 + SIGKILL);
  EXPECT_EQ(CodeOf("kill -SEGV $$"), 128 + SIGSEGV);
}

TEST(SentinelTest, ProgramsThatCannotBeStarted) {
  EXPECT_TRUE(absl::IsNotFound(RunSentinel({"no-such-program"}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(RunSentinel({}).status()));
}

class SentinelFileTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mkfifo(fifo_.c_str(), 0600), 0); }
  // A line of it; waits for a writer.
  std::string FromFifo() {
    const auto text = ReadFile(fifo_);
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }

  test::TempDir dir_;
  const std::string fifo_ = dir_.Path("fifo");
};

TEST_F(SentinelFileTest, ForwardsSignals) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    // It has set its trap when it writes.
    Sentinel sentinel(
        {"/bin/bash", "-c",
         absl::StrCat("trap 'exit ", 10 + signal, "' ", signal, "; echo go > ",
                      fifo_, "; while true; do sleep 5 & wait $!; done")});
    EXPECT_EQ(FromFifo(), "go\n");
    sentinel.Signal(signal);
    EXPECT_EQ(sentinel.Wait(), 10 + signal);
  }
}

// A program that it has lost sight of belongs to it, and must not stay a
// zombie.
TEST_F(SentinelFileTest, WaitsForProcessesThatAreLeftBehind) {
  // The inner shell ends at once; its child becomes the sentinel's, ends, and
  // is no zombie any more when the program has looked.
  const std::string script = absl::StrCat(
      "sh -c 'cat ", fifo_, " > /dev/null & echo $!' > ", dir_.Path("pid"),
      "; read pid < ", dir_.Path("pid"), "; echo > ", fifo_,
      "; while [ -e /proc/$pid ]; do :; done; exit 5");
  EXPECT_EQ(CodeOf(script), 5);
}

TEST_F(SentinelFileTest, ItsProgramDiesWithIt) {
  // The reader of the FIFO sees its end when the last writer has died.
  Sentinel sentinel(
      {"/bin/sh", "-c",
       absl::StrCat("exec 5> ", fifo_, "; echo on >&5; exec sleep 600")});
  const Fd fifo(open(fifo_.c_str(), O_RDONLY));
  char byte = 0;
  ASSERT_EQ(read(fifo.get(), &byte, 1), 1);
  sentinel.Signal(SIGKILL);
  while (read(fifo.get(), &byte, 1) > 0) {
  }
  EXPECT_EQ(sentinel.Wait(), 1000 + SIGKILL);
}

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
  std::vector<std::string> Mortal(int megabytes) const {
    return {MORTAL, absl::StrCat(port_), absl::StrCat(megabytes)};
  }
  void Accept() {
    connection_.Reset(
        accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(connection_.valid());
    ASSERT_EQ(read(connection_.get(), &pid_, sizeof(pid_)),
              static_cast<ssize_t>(sizeof(pid_)));
  }
  bool ConnectionEnds() const {
    pollfd fd = {connection_.get(), POLLIN, 0};
    char byte = 0;
    return poll(&fd, 1, kLongMs) == 1 && read(connection_.get(), &byte, 1) <= 0;
  }
  // Whether a thread of the process still has a socket open.
  bool HasSockets() const {
    const std::string tasks = absl::StrCat("/proc/", pid_, "/task");
    for (const std::string& thread :
         ListDirectory(tasks).value_or(std::vector<std::string>())) {
      const std::string folder = absl::StrCat(tasks, "/", thread, "/fd");
      for (const std::string& fd :
           ListDirectory(folder).value_or(std::vector<std::string>())) {
        char target[64] = {};
        if (readlink(JoinPath(folder, fd).c_str(), target, sizeof(target) - 1) >
                0 &&
            absl::StartsWith(target, "socket:")) {
          return true;
        }
      }
    }
    return false;
  }

  Fd listening_;
  Fd connection_;
  int port_ = 0;
  pid_t pid_ = 0;
};

TEST_F(MortalTest, ConnectionsOfAProcessAreShutDown) {
  Options options;
  options.argv = Mortal(1);
  const auto process = Start(options);
  ASSERT_TRUE(process.ok()) << process.status();
  Accept();
  const auto cut = ShutDownConnections(pid_);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(*cut, 1);
  EXPECT_TRUE(ConnectionEnds());
  // It does not know.
  EXPECT_TRUE(HasSockets());
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  EXPECT_FALSE(ShutDownConnections(pid_).ok());
}

// The memory takes tens of milliseconds to free. Only a sentinel that gets no
// processor for so long is later than the kernel.
TEST_F(MortalTest, ConnectionsEndBeforeTheMemoryIsFree) {
  constexpr int kRounds = 20;
  int earlier = 0;
  for (int round = 0; round < kRounds && earlier == 0; ++round) {
    Sentinel sentinel(Mortal(400));
    Accept();
    kill(pid_, SIGKILL);
    ASSERT_TRUE(ConnectionEnds());
    // The kernel takes the sockets from the process before it closes them.
    if (HasSockets()) ++earlier;
    EXPECT_EQ(sentinel.Wait(), 128 + SIGKILL);
  }
  EXPECT_GT(earlier, 0);
}

}  // namespace
}  // namespace elasticdl::process
