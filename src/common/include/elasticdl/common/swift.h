// Threads that run as soon as they are woken up, also when all cores are busy.
//
// A thread that is woken up waits for the end of the turn of the one that runs,
// up to 4 ms where the kernel looks 250 times a second. On the way from the
// death of a worker to the next step of the others, a handful of threads wake
// each other up. Since Linux 6.12 a thread that asks for short turns does not
// wait. It gets no more time than others, and needs no privilege; on older
// kernels nothing changes. For threads that mostly wait, not for those that
// compute.
#pragma once

#include <cstdint>

namespace elasticdl {

// From now on, for this thread; not for the threads and processes that it
// starts.
void BeSwift();

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
