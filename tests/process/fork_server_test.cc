// Processes of a real fork server.
#include "elasticdl/fork_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::process {
namespace {

using ::testing::StartsWith;

// Milliseconds; only a failing test waits that long.
constexpr int kPatience = 20000;

class ForkServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = ForkServer::Start(FORKING_SHELL, {"PATH=/usr/bin:/bin"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  Options Run(const std::vector<std::string>& args) const {
    Options options;
    options.argv = {FORKING_SHELL};
    options.argv.insert(options.argv.end(), args.begin(), args.end());
    options.environment = {"PATH=/usr/bin:/bin"};
    options.log_file = dir_.Path("log");
    return options;
  }
  Options Shell(const std::string& script) const { return Run({"-c", script}); }

  // The next answer; UNAVAILABLE when the server has ended.
  absl::StatusOr<ForkServer::Answer> Next() {
    while (true) {
      auto next = server_->Next();
      if (!next.ok()) return next.status();
      if (next->has_value()) return **std::move(next);
      pollfd fd = {server_->fd(), POLLIN, 0};
      if (poll(&fd, 1, kPatience) != 1) {
        return absl::DeadlineExceededError("no answer");
      }
    }
  }
  Process Started(const Options& options) {
    EXPECT_TRUE(server_->Ask(++request_, options).ok());
    auto answer = Next();
    EXPECT_TRUE(answer.ok()) << answer.status();
    if (!answer.ok()) return {};
    EXPECT_EQ(answer->request, request_);
    EXPECT_TRUE(answer->process.ok()) << answer->process.status();
    return answer->process.ok() ? *std::move(answer->process) : Process();
  }
  static int Wait(const Process& process) {
    int status = 0;
    EXPECT_EQ(waitpid(process.pid, &status, 0), process.pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string MakeFifo() const {
    std::string path = dir_.Path("fifo");
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    return path;
  }
  // Waits until somebody reads.
  static Fd OpenForWriting(const std::string& fifo) {
    return Fd(open(fifo.c_str(), O_WRONLY | O_CLOEXEC));
  }
  std::string Log() const { return *ReadFile(dir_.Path("log")); }

  test::TempDir dir_;
  uint64_t request_ = 0;
  std::unique_ptr<ForkServer> server_;
};

TEST_F(ForkServerTest, ProcessIsAChildOfTheCaller) {
  EXPECT_EQ(Wait(Started(Shell("echo $PPID; exit 3"))), 3);
  EXPECT_EQ(Log(), absl::StrCat(getpid(), "\n"));
}

TEST_F(ForkServerTest, LaterVariablesWin) {
  Options options = Shell("echo $A $B");
  options.environment.insert(options.environment.end(),
                             {"A=1", "B=x=y", "A=2"});
  EXPECT_EQ(Wait(Started(options)), 0);
  EXPECT_EQ(Log(), "2 x=y\n");
}

TEST_F(ForkServerTest, PsShowsTheArguments) {
  const std::string fifo = MakeFifo();
  const Process process = Started(Run({"--read", fifo}));
  Fd writer = OpenForWriting(fifo);
  const auto line = ReadFile(absl::StrCat("/proc/", process.pid, "/cmdline"));
  EXPECT_THAT(*line, StartsWith(absl::StrCat(FORKING_SHELL, std::string(1, 0),
                                             "--read", std::string(1, 0), fifo,
                                             std::string(1, 0))));
  writer.Reset();
  EXPECT_EQ(Wait(process), 0);
}

TEST_F(ForkServerTest, ProcessesOutliveTheServer) {
  const std::string fifo = MakeFifo();
  const Process process =
      Started(Shell("read word < " + fifo + "; exit $word"));
  const Fd writer = OpenForWriting(fifo);
  server_->Kill();
  EXPECT_EQ(Next().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(server_->Ask(9, Shell("exit 0")).ok());
  ASSERT_EQ(write(writer.get(), "8\n", 2), 2);
  EXPECT_EQ(Wait(process), 8);
}

TEST_F(ForkServerTest, ProgramThatIsNoForkServer) {
  auto server = ForkServer::Start("/bin/true", {});
  ASSERT_TRUE(server.ok());
  server_ = *std::move(server);
  EXPECT_EQ(Next().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ForkServerTest, RefusesWhatDoesNotFit) {
  Options options = Shell("exit 0");
  options.environment.push_back("BIG=" + std::string(1 << 20, 'x'));
  EXPECT_EQ(server_->Ask(1, options).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Wait(Started(Shell("exit 2"))), 2);
}

}  // namespace
}  // namespace elasticdl::process
