// Threads that make a backend's calls to the API server.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "elasticdl/common/backoff.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/kube/client.h"

namespace elasticdl::master {

// One call to the API server about one pod.
struct PodCall {
  enum class Kind { kCreate, kDelete, kVerify };
  Kind kind = Kind::kCreate;
  std::string name;
  kube::Json pod;        // kCreate
  absl::Duration grace;  // kDelete
  // Once it has failed.
  std::shared_ptr<Backoff> backoff;
};

// Thread-safe. Calls for one pod are made in order, on one thread. A call that
// fails is repeated, later, until the callers are closed.
class PodCallers {
 public:
  struct Options {
    // Between tries of one call.
    absl::Duration retry_initial;
    absl::Duration retry_max;
    // Makes the call, on a thread of the callers. False: try again.
    std::function<bool(const PodCall&)> make;
  };
  explicit PodCallers(Options options);
  ~PodCallers();

  // Never waits.
  void Push(PodCall call);
  // Waits until all calls were made that were pushed before. Failed ones are
  // not repeated.
  void CloseAndJoin();

 private:
  struct Caller {
    Caller();
    Queue<PodCall> calls;
    Thread thread;
  };
  using Later = std::multimap<absl::Time, PodCall>;

  void Run(Caller& caller);
  void Make(Caller& caller, PodCall call, Later& later);

  const Options options_;
  // Creating a pod takes 10 to 50 ms of waiting: four at a time start a hundred
  // workers in about a second and do not burden the API server.
  static constexpr int kCallers = 4;
  Caller callers_[kCallers];
};

}  // namespace elasticdl::master
