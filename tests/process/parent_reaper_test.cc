#include "elasticdl/parent_reaper.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "elasticdl/process.h"
#include "support/temp_dir.h"

namespace elasticdl::process {
namespace {

using ::testing::Optional;

// This process is the parent; a child of it starts processes for it.
class ParentReaperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    auto reaper = ParentReaper::Create();
    ASSERT_TRUE(reaper.ok());
    reaper_ = *std::move(reaper);
    ASSERT_EQ(mkfifo(fifo_.c_str(), 0600), 0);
  }
  void TearDown() override { prctl(PR_SET_CHILD_SUBREAPER, 0); }

  // Runs `body` in a child and waits for its end, by SIGKILL.
  static void InKilledChild(const std::function<void()>& body) {
    const pid_t child = fork();
    if (child == 0) {
      body();
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
  }
  // A shell that a child has started for this process before it died.
  pid_t StartFor(const std::string& script, pid_t parent) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const Fd read_end(ends[0]);
    const Fd write_end(ends[1]);
    InKilledChild([&] {
      Options options;
      options.argv = {"/bin/sh", "-c", script};
      options.parent = parent;
      const auto started = Start(options);
      const pid_t pid = started.ok() ? started->pid : -1;
      if (write(write_end.get(), &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
    });
    pid_t pid = 0;
    EXPECT_EQ(read(read_end.get(), &pid, sizeof(pid)), sizeof(pid));
    return pid;
  }
  static void WaitForZombie(pid_t pid) {
    const Fd pidfd = OpenPidfd(pid);
    pollfd fd = {pidfd.get(), POLLIN, 0};
    ASSERT_EQ(poll(&fd, 1, 20000), 1);
  }

  test::TempDir dir_;
  const std::string fifo_ = dir_.Path("fifo");
  std::optional<ParentReaper> reaper_;
};

TEST_F(ParentReaperTest, ProcessOutlivesTheOneThatStartedIt) {
  const pid_t pid =
      StartFor(absl::StrCat("read x < ", fifo_, "; exit $x"), getpid());
  ASSERT_GT(pid, 0);
  EXPECT_TRUE(IsStartedChild(pid, getpid()));
  EXPECT_FALSE(IsStartedChild(pid, getppid()));
  EXPECT_EQ(ExitStatusOf(pid), std::nullopt);
  const Fd writer(open(fifo_.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(write(writer.get(), "7\n", 2), 2);
  WaitForZombie(pid);
  // It can be asked as long as nobody has said that it was.
  reaper_->Reap();
  EXPECT_TRUE(IsStartedChild(pid, getpid()));
  EXPECT_THAT(ExitStatusOf(pid), Optional(7 << 8));
  TellEnded(reaper_->tell_fd(), pid);
  reaper_->Reap();
  EXPECT_EQ(ExitStatusOf(pid), std::nullopt);
  EXPECT_FALSE(IsStartedChild(pid, getpid()));
  EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), -1);
}

TEST_F(ParentReaperTest, SignalsAreSeen) {
  const pid_t pid = StartFor(absl::StrCat("read x < ", fifo_), getpid());
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  WaitForZombie(pid);
  EXPECT_THAT(ExitStatusOf(pid), Optional(SIGKILL));
  TellEnded(reaper_->tell_fd(), pid);
  reaper_->Reap();
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

// The parent that was named is not the nearest subreaper: nothing runs.
TEST_F(ParentReaperTest, NothingRunsUnderAnotherParent) {
  const pid_t pid = StartFor(absl::StrCat("echo > ", dir_.Path("ran")), 1);
  if (pid > 0) {
    WaitForZombie(pid);
    waitpid(pid, nullptr, 0);
  }
  struct stat info;
  EXPECT_NE(stat(dir_.Path("ran").c_str(), &info), 0);
}

TEST_F(ParentReaperTest, DiesWithTheParent) {
  // The parent is a child of this process, and its child that starts.
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  InKilledChild([&] {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t pid = StartFor(absl::StrCat("read x < ", fifo_), getpid());
    if (write(write_end.get(), &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
  });
  pid_t pid = 0;
  ASSERT_EQ(read(read_end.get(), &pid, sizeof(pid)), sizeof(pid));
  ASSERT_GT(pid, 0);
  // It is ours now, and dead.
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, SIGKILL);
}

TEST_F(ParentReaperTest, UnknownNumbersAreNoHarm) {
  for (const pid_t pid : {0, -1, 1, getpid()}) {
    TellEnded(reaper_->tell_fd(), pid);
  }
  reaper_->Reap();
  EXPECT_FALSE(IsStartedChild(0, getpid()));
  EXPECT_EQ(ExitStatusOf(getpid()), std::nullopt);
}

}  // namespace
}  // namespace elasticdl::process
