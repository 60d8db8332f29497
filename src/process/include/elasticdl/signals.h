// Signals as calls on a thread, where locks and allocations are allowed.
#pragma once

#include <signal.h>

#include <functional>
#include <initializer_list>

#include "elasticdl/common/file.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::process {

// Thread-compatible. Blocks the signals in the calling thread and in all that
// it starts later; make it first thing in main.
class SignalWatcher {
 public:
  SignalWatcher(std::initializer_list<int> signals);
  ~SignalWatcher() { Stop(); }

  // Calls `handler` for each signal from now on, those that came in between
  // included. Once.
  void Start(std::function<void(int signal)> handler);
  // No call comes after it has returned; signals stay blocked. Idempotent; not
  // from the handler.
  void Stop();

 private:
  Fd signals_;
  Fd stop_;
  Thread thread_;
};

}  // namespace elasticdl::process
