// The master's end of the workers' streams: accepts connections that carry the
// job's token, hands their messages to one sink and sends to them. Knows
// nothing of what the messages mean.
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

// One stream; never reused in the life of a server.
using ConnectionId = int64_t;

// Called from the server's threads, several at a time, but in order for each
// connection: messages, then OnClosed exactly once. Must not block.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  virtual void OnMessage(ConnectionId connection,
                         v1::WorkerMessage message) = 0;
  // The stream is gone; `status` says why (OK: the worker closed it).
  virtual void OnClosed(ConnectionId connection,
                        const absl::Status& status) = 0;
};

// Thread-safe.
class StreamServer {
 public:
  struct Options {
    // host:port; port 0 picks a free one.
    std::string address = "0.0.0.0:50001";
    // What every call must carry; must not be empty.
    std::string token;
    // A silent peer is pinged this often and given up after as long again.
    absl::Duration keepalive = absl::Seconds(1);
    absl::Duration keepalive_timeout = absl::Seconds(2);
  };

  // `sink` must outlive the server.
  static absl::StatusOr<std::unique_ptr<StreamServer>> Start(
      const Options& options, StreamSink& sink);
  virtual ~StreamServer() = default;

  // The port that is listened on.
  virtual int port() const = 0;

  // Queues a message for each of the connections; never blocks. Dropped for one
  // that is gone (its OnClosed says so).
  virtual void Send(const std::vector<ConnectionId>& connections,
                    v1::MasterMessage message) = 0;

  // Ends a stream after what is queued for it has been sent. The worker sees
  // `status`. OnClosed follows.
  virtual void Close(ConnectionId connection, const absl::Status& status) = 0;

  // Stops listening, ends all streams (those not gone by `grace` are cut) and
  // returns when no call of the sink is running or can come. Idempotent.
  virtual void Shutdown(absl::Duration grace) = 0;
};

}  // namespace elasticdl::rendezvous
