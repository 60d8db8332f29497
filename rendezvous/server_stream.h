// The server's end of one stream: waits for the call, then reads and writes.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "completion_lane.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/rendezvous/stream_server.h"
#include "elasticdl/v1/master.grpc.pb.h"

namespace elasticdl::rendezvous {

// Thread-safe. What completes is handled on the thread of its lane (the call
// itself: on that of the server's), so the calls of its owner are in order.
class ServerStream {
 public:
  // What a stream needs from its server. Outlives every stream.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual StreamSink& sink() = 0;
    // The awaited call has come: Begin() it, or Close() to refuse it. Not
    // called if the server has shut down before.
    virtual void OnCall(ServerStream* stream) = 0;
    // The newest Prepare, whole, if it is still the one of this generation.
    virtual void PrepareAgain(ConnectionId id, int64_t generation) = 0;
    // The stream that began has ended: it must not be used any more.
    virtual void Forget(ConnectionId id) = 0;
    // Nothing is outstanding, and nothing will be called again: delete it.
    virtual void Remove(ServerStream* stream) = 0;
  };

  ServerStream(CompletionLane& lane, Owner& owner);
  ServerStream(const ServerStream&) = delete;
  ServerStream& operator=(const ServerStream&) = delete;

  CompletionLane& lane() { return lane_; }
  const grpc::ServerContext& context() const { return context_; }

  // The next call is for this stream. `calls` is the queue in which it
  // completes.
  void Await(v1::Master::AsyncService& service,
             grpc::ServerCompletionQueue& calls);
  void Begin(ConnectionId id);

  // Queues the message; drops it if the stream is ending.
  void Send(std::shared_ptr<const v1::MasterMessage> message);
  // Ends the stream after the queued messages. Idempotent.
  void Close(const absl::Status& status);

 private:
  class Step final : public Operation {
   public:
    virtual ~Step() = default;
    using Handler = void (ServerStream::*)(bool ok);
    Step(ServerStream& stream, Handler handler)
        : stream_(stream), handler_(handler) {}
    void OnComplete(bool ok) override { (stream_.*handler_)(ok); }

   private:
    ServerStream& stream_;
    const Handler handler_;
  };

  void OnCalled(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void OnEnded(bool ok);
  void MaybeWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MaybeFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // An operation was handled. After the last one this does not exist any more.
  void OneLess();

  CompletionLane& lane_;
  Owner& owner_;
  // 0: has not begun.
  ConnectionId id_ = 0;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<v1::MasterMessage, v1::WorkerMessage> stream_;
  v1::WorkerMessage in_;
  Step called_{*this, &ServerStream::OnCalled};
  Step read_{*this, &ServerStream::OnRead};
  Step written_{*this, &ServerStream::OnWritten};
  Step finish_{*this, &ServerStream::OnFinished};
  Step ended_{*this, &ServerStream::OnEnded};

  Mutex mu_;
  // While writing_, the first one is being written. Messages are shared between
  // all streams that they go to.
  std::deque<std::shared_ptr<const v1::MasterMessage>> out_
      ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status close_status_ ABSL_GUARDED_BY(mu_);
  // Operations that have not been handled. At first the call and its end; the
  // end comes only after Finish or when the peer is gone, perhaps before the
  // call has been handled.
  int outstanding_ ABSL_GUARDED_BY(mu_) = 2;
};

}  // namespace elasticdl::rendezvous
