#include "elasticdl/common/end_as_killed.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace elasticdl {
namespace {

// How `pid` ended.
int AwaitStatus(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return status;
}

TEST(EndAsKilledTest, IsASignal) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) EndAsKilled();
  const int status = AwaitStatus(child);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

// As in a container.
TEST(EndAsKilledTest, TheFirstProcessOfANamespaceExits) {
  constexpr int kNoNamespace = 99;
  const pid_t outer = fork();
  ASSERT_GE(outer, 0);
  if (outer == 0) {
    if (unshare(CLONE_NEWPID) != 0 &&
        unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
      _exit(kNoNamespace);
    }
    const pid_t first = fork();
    if (first == 0) EndAsKilled();
    int status = 0;
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  const int status = AwaitStatus(outer);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == kNoNamespace) {
    GTEST_SKIP() << "no namespaces of processes here";
  }
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGKILL);
}

}  // namespace
}  // namespace elasticdl
