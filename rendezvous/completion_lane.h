// A completion queue of gRPC and the thread that handles what completes there.
//
// The queue of gRPC's callback interface is one for the whole process. A gRPC
// that is built with debug checks, as Debian's is, looks each completion up in
// the list of everything that is outstanding in its queue, two entries for each
// stream. With 10,000 streams that was most of the time of a message, so the
// server spreads its streams over several short queues.
#pragma once

#include <grpcpp/completion_queue.h>

#include <memory>

#include "elasticdl/common/thread.h"

namespace elasticdl::rendezvous {

// Something that completes in a lane, once for each time that it was started.
class Operation {
 public:
  // Runs on the lane's thread. Must not block.
  virtual void OnComplete(bool ok) = 0;

 protected:
  ~Operation() = default;
};

// Thread-safe. Every tag in the queue must be an Operation*.
class CompletionLane {
 public:
  explicit CompletionLane(std::unique_ptr<grpc::CompletionQueue> queue);
  ~CompletionLane() { Stop(); }
  CompletionLane(const CompletionLane&) = delete;
  CompletionLane& operator=(const CompletionLane&) = delete;

  grpc::CompletionQueue& queue() { return *queue_; }

  // Nothing must be outstanding, and nothing may be started any more. Returns
  // once the thread has ended. Idempotent; not from two threads at a time.
  void Stop();

 private:
  void Run();

  const std::unique_ptr<grpc::CompletionQueue> queue_;
  bool stopped_ = false;
  Thread thread_;
};

}  // namespace elasticdl::rendezvous
