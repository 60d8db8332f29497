// Memory of other processes that the master keeps.
#include "kept_states.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::unique_ptr<keep::KeptState> MakeState(int64_t worker_id) {
  auto state = keep::KeptState::Create();
  EXPECT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE((*state)->AddArray(1000).ok());
  EXPECT_TRUE((*state)->Seal(/*layout=*/1).ok());
  (*state)->SetOwner(worker_id);
  return *std::move(state);
}

// A worker that has its state at step 5 and waits.
class KeptStatesOfProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const Fd read_end(ends[0]);
    const Fd write_end(ends[1]);
    pid_ = fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      const auto state = MakeState(3);
      state->Publish({5, 1, 0.1, {{3, 40}}});
      fd_ = state->fd();
      if (write(write_end.get(), &fd_, sizeof(fd_)) == sizeof(fd_)) pause();
      _exit(1);
    }
    ASSERT_EQ(read(read_end.get(), &fd_, sizeof(fd_)), sizeof(fd_));
  }
  void TearDown() override { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  pid_t pid_ = 0;
  int fd_ = -1;
  StateKeeper keeper_;
};

TEST_F(KeptStatesOfProcessTest, OutlivesItsProcess) {
  keeper_.Keep(3, pid_, fd_);
  EXPECT_THAT(keeper_.Workers(), ElementsAre(3));
  EXPECT_FALSE(keeper_.HasEnded(3));
  Kill();
  EXPECT_TRUE(keeper_.HasEnded(3));
  const auto kept = keeper_.Look(3);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->facts.step, 5);
  EXPECT_THAT(kept->facts.totals, ElementsAre(std::make_pair(3, 40)));
  keeper_.Drop(3);
  EXPECT_THAT(keeper_.Workers(), IsEmpty());
}

TEST_F(KeptStatesOfProcessTest, OnlyWhatTheWorkerHasIsKept) {
  // Of another worker, or of another process.
  keeper_.Keep(4, pid_, fd_);
  EXPECT_THAT(keeper_.Workers(), IsEmpty());
  const auto ours = MakeState(3);
  keeper_.Keep(3, getppid(), ours->fd());
  EXPECT_THAT(keeper_.Workers(), IsEmpty());
  // Something else; a pipe without a writer would block who opens it.
  const std::string fifo = absl::StrCat(testing::TempDir(), "/kept_fifo");
  unlink(fifo.c_str());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const Fd pipe(open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  keeper_.Keep(3, getpid(), pipe.get());
  EXPECT_THAT(keeper_.Workers(), IsEmpty());
  unlink(fifo.c_str());
  // Somebody who is gone.
  const pid_t pid = pid_;
  Kill();
  keeper_.Keep(3, pid, fd_);
  EXPECT_THAT(keeper_.Workers(), IsEmpty());
}

}  // namespace
}  // namespace elasticdl::master
