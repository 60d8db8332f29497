// Runs a part of a test on a disk that is soon full: a small tmpfs.
#pragma once

#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <string>

#include "gtest/gtest.h"

namespace elasticdl::test {

// In a mount namespace of this process alone, which ends with it.
inline bool MountSmallDisk(const std::string& path, const std::string& size) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    return false;
  }
  const std::string options = "size=" + size;
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", path.c_str(), "tmpfs", 0, options.c_str()) == 0;
}

// Calls `body`, which uses EXPECT only, in a child process that has a disk of
// `size` (as mount takes it, e.g. "64k") at `path`. False: not permitted here.
inline bool RunOnSmallDisk(const std::string& path, const std::string& size,
                           const std::function<void()>& body) {
  constexpr int kSkipped = 77;
  fflush(nullptr);
  const pid_t child = fork();
  EXPECT_GE(child, 0);
  if (child == 0) {
    if (!MountSmallDisk(path, size)) {
      fprintf(stderr, "cannot mount a tmpfs: %s\n", strerror(errno));
      _exit(kSkipped);
    }
    body();
    fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kSkipped) return false;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return true;
}

}  // namespace elasticdl::test
