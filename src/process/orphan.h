// A fork whose process belongs to somebody else: to the nearest subreaper above
// the one that forks.
#pragma once

#include <sys/types.h>

#include "elasticdl/common/file.h"

namespace elasticdl::process {

struct Orphan {
  // In the caller: the number of the new process, or -1 with errno. In the new
  // process: 0.
  pid_t pid = -1;
  // An end of a pair of sockets each.
  Fd go;
};

// Like fork(), but the new process is forked by one that ends at once, so that
// the kernel gives it to the nearest subreaper. It leads a group of its own
// when its number is known. Async-signal-safe in the new process.
Orphan ForkOrphan();

// In the caller: the new process goes on, unless it was killed meanwhile.
void LetGo(const Orphan& orphan);

// In the new process: waits for that. False: it will not come, because whoever
// wanted this process has died; nobody knows of it.
bool AwaitGo(const Orphan& orphan);

}  // namespace elasticdl::process
