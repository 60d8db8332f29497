// Processes that one process starts and watches, but that are children of its
// parent (Options::parent), so that they outlive it
// (docs/design/0015-local-master-restart.md).
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>

#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"

namespace elasticdl::process {

// In the parent: waits for a child when the one that watches it has seen how it
// ended, and not before: until then its number belongs to it.
// Thread-compatible.
class ParentReaper {
 public:
  static absl::StatusOr<ParentReaper> Create();

  // Becomes readable when Reap has something to do.
  int fd() const { return read_.get(); }
  // For TellEnded in the process that watches: to be kept open in it.
  int tell_fd() const { return write_.get(); }

  // Waits for the children that were told, and for what is left of their
  // process groups. Never blocks.
  void Reap();

 private:
  ParentReaper(Fd read, Fd write);

  Fd read_;
  Fd write_;
  // Groups of those that have ended, whose other processes may end later.
  std::set<pid_t> groups_;
};

// In the process that watches: the parent may wait for `pid` now. `fd` is the
// parent's tell_fd. If it cannot be told, the child stays a zombie.
void TellEnded(int fd, pid_t pid);

// How a process ended, as waitpid() would say, while nobody has waited for it.
// Nothing: that cannot be known (any more).
std::optional<int> ExitStatusOf(pid_t pid);

// Is there a process `pid` that is a child of `parent` and leads its own group,
// as all do that Start or a fork server has started? A zombie is one.
bool IsStartedChild(pid_t pid, pid_t parent);

}  // namespace elasticdl::process
