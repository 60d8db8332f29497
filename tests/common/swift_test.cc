#include "elasticdl/common/swift.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "elasticdl/common/thread.h"

namespace elasticdl {
namespace {

// The length of a turn of this thread, in nanoseconds.
uint64_t Turn() {
  char attributes[48] = {};
  if (syscall(SYS_sched_getattr, 0, attributes, sizeof(attributes), 0) != 0) {
    return 0;
  }
  uint64_t runtime = 0;
  std::memcpy(&runtime, attributes + 24, sizeof(runtime));
  return runtime;
}

uint64_t TurnInThread(const std::function<void()>& first = [] {}) {
  uint64_t turn = 0;
  Thread thread("turn", [&] {
    first();
    turn = Turn();
  });
  thread.Join();
  return turn;
}

class SwiftTest : public testing::Test {
 protected:
  void SetUp() override {
    if (usual_ == 0 || TurnInThread(BeSwift) == usual_) {
      GTEST_SKIP() << "this kernel has turns of one length only";
    }
  }
  const uint64_t usual_ = Turn();
};

TEST_F(SwiftTest, AThreadHasShortTurnsAndNoHeirs) {
  uint64_t heir = 0;
  const uint64_t own = TurnInThread([&] {
    BeSwift();
    heir = TurnInThread();
  });
  EXPECT_LT(own, usual_);
  EXPECT_EQ(heir, usual_);
  EXPECT_EQ(Turn(), usual_);
}

TEST_F(SwiftTest, ThreadsThatAreStartedMeanwhileAndTheirs) {
  {
    const StartSwiftThreads swift;
    EXPECT_LT(TurnInThread(), usual_);
    uint64_t second = 0;
    TurnInThread([&] { second = TurnInThread(); });
    EXPECT_LT(second, usual_);
  }
  EXPECT_EQ(Turn(), usual_);
  EXPECT_EQ(TurnInThread(), usual_);
}

TEST_F(SwiftTest, ProcessesOfASwiftThreadAreAsUsual) {
  uint64_t child = 0;
  TurnInThread([&] {
    BeSwift();
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      const uint64_t turn = Turn();
      _exit(write(ends[1], &turn, sizeof(turn)) == sizeof(turn) ? 0 : 1);
    }
    ASSERT_GT(pid, 0);
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(read(ends[0], &child, sizeof(child)),
              static_cast<ssize_t>(sizeof(child)));
    close(ends[0]);
    close(ends[1]);
  });
  EXPECT_EQ(child, usual_);
}

TEST(LetOthersRunTest, SlowsAllThatIsLeftOfAProcess) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    while (true) pause();
  }
  const int before = getpriority(PRIO_PROCESS, static_cast<id_t>(child));
  LetOthersRun(child);
  const int after = getpriority(PRIO_PROCESS, static_cast<id_t>(child));
  EXPECT_GE(after, before);
  EXPECT_GE(after, 10);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  // There is nobody.
  LetOthersRun(child);
}

}  // namespace
}  // namespace elasticdl
