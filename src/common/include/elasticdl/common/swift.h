// Threads that run as soon as they are woken up, also when all cores are busy.
//
// A thread that is woken up may have to wait for the end of the turn of the one
// that runs, some milliseconds. On the way from the death of a worker to the
// next step of the others, a handful of threads wake each other up. Since Linux
// 6.12 a thread can ask for short turns, and need not wait for longer ones. It
// gets no more time than others, and needs no privilege; on older kernels
// nothing changes. For threads that mostly wait, not for those that compute.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace elasticdl {

// From now on, for this thread; not for the threads and processes that it
// starts.
void BeSwift();

// For a process that was killed: giving its memory back, which takes a core
// some milliseconds, gets a tenth of a core that others want. Nothing if there
// is no such process.
void LetOthersRun(pid_t killed);

// For threads that other code starts: while this exists, threads that this
// thread starts are swift, and those that they start. Processes, too: start
// none. Thread-compatible.
class StartSwiftThreads {
 public:
  StartSwiftThreads();
  ~StartSwiftThreads();
  StartSwiftThreads(const StartSwiftThreads&) = delete;
  StartSwiftThreads& operator=(const StartSwiftThreads&) = delete;

 private:
  // Nanoseconds; 0 = nothing to restore.
  uint64_t before_ = 0;
};

}  // namespace elasticdl
