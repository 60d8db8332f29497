// The folder of a local job: names, token, lock, rotation, lookup.
#include "elasticdl/jobdir.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "support/temp_dir.h"

namespace elasticdl::jobdir {
namespace {

using ::testing::HasSubstr;

mode_t Mode(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

TEST(ValidateJobNameTest, KeepsPathsAndLabelsSafe) {
  for (const char* good : {"a", "test-mnist", "Job_1.2", "0"}) {
    EXPECT_TRUE(ValidateJobName(good).ok()) << good;
  }
  for (const char* bad : {"", ".", "..", "a/b", "../x", "-a", "a-", "a b"}) {
    EXPECT_FALSE(ValidateJobName(bad).ok()) << bad;
  }
  EXPECT_TRUE(ValidateJobName(std::string(63, 'a')).ok());
  EXPECT_FALSE(ValidateJobName(std::string(64, 'a')).ok());
}

TEST(TokenTest, IsLongAndRandom) {
  const std::string a = *NewToken();
  const std::string b = *NewToken();
  EXPECT_EQ(a.size(), 64u);
  EXPECT_NE(a, b);
}

TEST(TokenTest, GivenOnesMustBeHardToGuessAndFitIntoAHeader) {
  EXPECT_TRUE(CheckToken(*NewToken()).ok());
  EXPECT_TRUE(CheckToken("correct-horse-battery-staple").ok());
  EXPECT_FALSE(CheckToken("").ok());
  EXPECT_FALSE(CheckToken(std::string(15, 'a')).ok());
  EXPECT_FALSE(CheckToken("two words, no secret at all").ok());
  EXPECT_FALSE(CheckToken("a line\nand another one").ok());
  EXPECT_THAT(std::string(CheckToken("abc").message()), HasSubstr("openssl"));
}

class JobDirTest : public ::testing::Test {
 protected:
  test::TempDir root_;
  JobDir dir_{root_.path(), "mnist"};
};

TEST_F(JobDirTest, AcquirePreparesThePrivateFolder) {
  const auto lock = JobLock::Acquire(dir_);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(dir_.path(), root_.Path("jobs/mnist"));
  EXPECT_EQ(dir_.job_name(), "mnist");
  EXPECT_EQ(Mode(dir_.path()), 0700u);
  EXPECT_EQ(Mode(dir_.TokenFile()), 0600u);
  EXPECT_EQ(dir_.ReadToken()->size(), 64u);
  EXPECT_TRUE(IsDirectory(dir_.LogsDir()));
  EXPECT_EQ(dir_.LogFile("w-0"), dir_.path() + "/logs/w-0.log");
}

TEST_F(JobDirTest, OneRunningJobPerName) {
  EXPECT_FALSE(dir_.IsRunning());
  {
    const auto lock = JobLock::Acquire(dir_);
    ASSERT_TRUE(lock.ok());
    EXPECT_TRUE(dir_.IsRunning());
    const std::string token = *dir_.ReadToken();
    const auto second = JobLock::Acquire(dir_);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr("mnist"));
    EXPECT_EQ(*dir_.ReadToken(), token);  // the refused one changed nothing
    EXPECT_TRUE(JobLock::Acquire(JobDir(root_.path(), "other")).ok());
  }
  EXPECT_FALSE(dir_.IsRunning());
  EXPECT_TRUE(JobLock::Acquire(dir_).ok());
}

TEST_F(JobDirTest, RefusesANameThatLeavesTheFolder) {
  EXPECT_EQ(JobLock::Acquire(JobDir(root_.path(), "../x")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(JobDirTest, NextRunRotatesAndRenews) {
  std::string token;
  {
    const auto lock = JobLock::Acquire(dir_);
    ASSERT_TRUE(lock.ok());
    token = *dir_.ReadToken();
    ASSERT_TRUE(WriteFileAtomic(dir_.LogFile("w"), "first").ok());
    ASSERT_TRUE(WriteFileAtomic(dir_.EventsFile(), "e1").ok());
    ASSERT_TRUE(dir_.WriteAddress("127.0.0.1:1").ok());
    ASSERT_TRUE(dir_.WritePid("w", 1).ok());
  }
  for (const char* last : {"first", "second"}) {
    const auto lock = JobLock::Acquire(dir_);
    ASSERT_TRUE(lock.ok());
    EXPECT_NE(*dir_.ReadToken(), token);
    EXPECT_FALSE(FileExists(dir_.LogFile("w")));
    EXPECT_FALSE(dir_.ReadAddress().ok());
    EXPECT_TRUE(dir_.ReadPids().empty());
    EXPECT_EQ(*ReadFile(dir_.path() + "/previous/logs/w.log"), last);
    ASSERT_TRUE(WriteFileAtomic(dir_.LogFile("w"), "second").ok());
  }
}

TEST_F(JobDirTest, OnlyTheOwnerGoesOnWithAJournal) {
  const auto run = [&](auto acquire, const std::string& owner) {
    const auto lock = acquire(dir_, owner);
    ASSERT_TRUE(lock.ok()) << lock.status();
  };
  run(&JobLock::Acquire, "job 7 of Slurm");
  ASSERT_TRUE(WriteFileAtomic(dir_.JournalFile(), "of 7").ok());
  const std::string token = *dir_.ReadToken();
  run(&JobLock::AcquireAgain, "job 7 of Slurm");
  EXPECT_EQ(*ReadFile(dir_.JournalFile()), "of 7");
  EXPECT_EQ(*dir_.ReadToken(), token);
  // Another job took the name, and the first one is requeued after it.
  run(&JobLock::Acquire, "job 8 of Slurm");
  ASSERT_TRUE(WriteFileAtomic(dir_.JournalFile(), "of 8").ok());
  run(&JobLock::AcquireAgain, "job 7 of Slurm");
  EXPECT_FALSE(FileExists(dir_.JournalFile()));
  EXPECT_EQ(*ReadFile(dir_.OwnerFile()), "job 7 of Slurm");
  ASSERT_TRUE(WriteFileAtomic(dir_.JournalFile(), "of 7").ok());
  run(&JobLock::AcquireAgain, "");
  EXPECT_FALSE(FileExists(dir_.JournalFile()));
  EXPECT_FALSE(FileExists(dir_.OwnerFile()));
}

TEST_F(JobDirTest, LockOfAKilledProcessIsFree) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto lock = JobLock::Acquire(dir_);
    (void)!write(ready[1], lock.ok() ? "y" : "n", 1);
    while (true) pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_TRUE(dir_.IsRunning());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(dir_.IsRunning());
  EXPECT_TRUE(JobLock::Acquire(dir_).ok());
}

TEST_F(JobDirTest, AdoptedLockOutlivesTheFirstOwner) {
  std::optional<JobLock> adopted;
  {
    const auto lock = JobLock::Acquire(dir_);
    ASSERT_TRUE(lock.ok());
    // A child gets a duplicate of the open file, which dup makes here.
    auto copy = JobLock::Adopt(dir_, dup(lock->fd()));
    ASSERT_TRUE(copy.ok()) << copy.status();
    adopted = *std::move(copy);
  }
  EXPECT_TRUE(dir_.IsRunning());
  EXPECT_EQ(fcntl(adopted->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  adopted.reset();
  EXPECT_FALSE(dir_.IsRunning());
}

TEST_F(JobDirTest, AdoptRefusesAnotherDescriptor) {
  ASSERT_TRUE(JobLock::Acquire(dir_).ok());
  const Fd other(open("/dev/null", O_RDONLY));
  EXPECT_EQ(JobLock::Adopt(dir_, other.get()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(JobLock::Adopt(dir_, 9999).ok());
}

TEST_F(JobDirTest, TokenThatOthersCanReadIsRefused) {
  ASSERT_TRUE(JobLock::Acquire(dir_).ok());
  ASSERT_EQ(chmod(dir_.TokenFile().c_str(), 0644), 0);
  EXPECT_EQ(dir_.ReadToken().status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(JobDirTest, PidsComeAndGo) {
  const auto lock = JobLock::Acquire(dir_);
  ASSERT_TRUE(dir_.WritePid("a", 12).ok());
  ASSERT_TRUE(dir_.WritePid("b", 13).ok());
  dir_.RemovePid("a");
  EXPECT_THAT(dir_.ReadPids(),
              ::testing::ElementsAre(::testing::Pair("b", 13)));
}

TEST_F(JobDirTest, FindsARunningJobByItsAddress) {
  const auto lock = JobLock::Acquire(dir_);
  ASSERT_TRUE(dir_.WriteAddress("127.0.0.1:50001").ok());
  for (const char* same :
       {"localhost:50001", "127.0.0.1:50001", "[::1]:50001", "0.0.0.0:50001"}) {
    const auto found = FindByAddress(root_.path(), same);
    ASSERT_TRUE(found.ok()) << same << " " << found.status();
    EXPECT_EQ(found->path(), dir_.path());
  }
  for (const char* other : {"localhost:50002", "example.org:50001", "x"}) {
    EXPECT_EQ(FindByAddress(root_.path(), other).status().code(),
              absl::StatusCode::kNotFound);
  }
}

TEST_F(JobDirTest, EndedJobsAreListedButNotFoundByAddress) {
  {
    const auto lock = JobLock::Acquire(dir_);
    ASSERT_TRUE(dir_.WriteAddress("127.0.0.1:50001").ok());
  }
  EXPECT_FALSE(FindByAddress(root_.path(), "localhost:50001").ok());
  ASSERT_EQ(ListJobs(root_.path()).size(), 1u);
  EXPECT_EQ(ListJobs(root_.path())[0].job_name(), "mnist");
  EXPECT_TRUE(ListJobs(root_.Path("missing")).empty());
}

}  // namespace
}  // namespace elasticdl::jobdir
