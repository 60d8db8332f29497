// A program under test, and proof that it left no process behind.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "elasticdl/common/file.h"

namespace elasticdl::test {

// How long a process test waits for anything. Generous: the machine may be
// busy; nothing waits this long unless something is wrong.
inline constexpr absl::Duration kPatience = absl::Seconds(150);

// Runs a program in a session of its own, with its output in two files. The
// destructor kills it. Thread-compatible.
class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> argv;
    // Added to the environment of this process: KEY=VALUE.
    std::vector<std::string> environment;
    // Where its output goes: <log>.out and <log>.err.
    std::string log;
  };

  // Ends the test program when it cannot be started.
  explicit ChildProcess(const Options& options);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // The exit code, or 128 + the signal that ended it; nothing when the time is
  // over.
  std::optional<int> Wait(absl::Duration timeout = kPatience);

  std::string out() const;
  std::string err() const;
  std::string out_path() const { return log_ + ".out"; }
  std::string err_path() const { return log_ + ".err"; }

 private:
  const std::string log_;
  pid_t pid_ = 0;
  Fd pidfd_;
  std::optional<int> exit_code_;
};

// Waits until process `pid` (of whoever) is gone.
bool WaitForEnd(pid_t pid, absl::Duration timeout = kPatience);

// Makes orphans of our descendants our children from now on, so that none can
// hide; the destructor kills what is left of them. Thread-compatible; one at a
// time, and outliving every ChildProcess.
class Orphanage {
 public:
  Orphanage();
  ~Orphanage();
  Orphanage(const Orphanage&) = delete;
  Orphanage& operator=(const Orphanage&) = delete;

  // Waits until this process has no child, grandchild, … left. Call it when
  // every ChildProcess was waited for.
  bool WaitForNobody(absl::Duration timeout = kPatience);
};

}  // namespace elasticdl::test
