// The master's end of the workers' streams. Accepts connections that carry the
// job's token (else UNAUTHENTICATED) and the master's version (else
// UNIMPLEMENTED), passes their messages to one sink and sends messages to them.
// It does not interpret the messages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::rendezvous {

// Identifies one stream; a server never reuses an id.
using ConnectionId = int64_t;

// Called from the server's threads, concurrently for different connections. For
// each connection calls are in order: messages, then OnClosed exactly once.
// Must not block.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  virtual void OnMessage(ConnectionId connection,
                         v1::WorkerMessage message) = 0;
  // The stream has ended; `status` says why (OK: the worker closed it).
  virtual void OnClosed(ConnectionId connection,
                        const absl::Status& status) = 0;
};

// Thread-safe.
class StreamServer {
 public:
  struct Options {
    // host:port; port 0 picks a free one.
    std::string address = "0.0.0.0:50001";
    // The token that every call must carry; must not be empty.
    std::string token;
    // How often a silent peer is pinged, and how long to wait for its answer.
    absl::Duration keepalive = absl::Seconds(1);
    absl::Duration keepalive_timeout = absl::Seconds(2);
    // Another socket of this user reserves the port (SO_REUSEPORT).
    bool reserved_port = false;
    // How many streams share a thread and a completion queue. A gRPC with debug
    // checks searches the queue's list of outstanding operations for each
    // message; more threads have to wake each other up.
    int streams_per_thread = 512;
  };

  // `sink` must outlive the server.
  static absl::StatusOr<std::unique_ptr<StreamServer>> Start(
      const Options& options, StreamSink& sink);
  virtual ~StreamServer() = default;

  // The port that the server listens on.
  virtual int port() const = 0;

  // Queues a message for each of the connections; never blocks. Connections
  // that have ended are skipped.
  virtual void Send(const std::vector<ConnectionId>& connections,
                    v1::MasterMessage message) = 0;

  // Ends a stream after its queued messages have been sent. The worker gets
  // `status`. OnClosed follows.
  virtual void Close(ConnectionId connection, const absl::Status& status) = 0;

  // Stops listening, ends all streams (after `grace` they are cancelled) and
  // returns when the sink is not being called and will not be called again.
  // Idempotent.
  virtual void Shutdown(absl::Duration grace) = 0;
};

}  // namespace elasticdl::rendezvous
