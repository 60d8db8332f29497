// A worker's end of its stream to the master.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::rendezvous {

// Metadata key of the job's token.
inline constexpr char kTokenKey[] = "elasticdl-token";

// Thread-safe.
class StreamClient {
 public:
  struct Options {
    std::string address;
    std::string token;
    // How long to keep trying to reach the master.
    absl::Duration connect_timeout = absl::Seconds(30);
    // A ping costs the master about as much as a message.
    absl::Duration keepalive = absl::Seconds(3);
    absl::Duration keepalive_timeout = absl::Seconds(5);
    // For tests: the version to claim; empty = the real one.
    std::string version;
  };

  // DEADLINE_EXCEEDED if nobody answers at the address in time.
  static absl::StatusOr<std::unique_ptr<StreamClient>> Connect(
      const Options& options);
  virtual ~StreamClient() = default;

  // Queues a message; never blocks. The message is dropped if the stream has
  // ended.
  virtual void Send(v1::WorkerMessage message) = 0;

  // Returns the next message. Returns nothing after `timeout`, or when the
  // stream has ended and all its messages have been received.
  virtual std::optional<v1::MasterMessage> Receive(absl::Duration timeout) = 0;

  // True once the stream has ended and Receive has no more messages; `status`
  // then says why.
  virtual bool ended() const = 0;
  virtual absl::Status status() const = 0;

  // Waits until all queued messages are written or the stream has ended.
  virtual absl::Status Flush(absl::Duration timeout) = 0;

  // Closes the stream after delivering all queued messages. Idempotent; the
  // destructor does it too.
  virtual void Close(absl::Duration timeout) = 0;
};

}  // namespace elasticdl::rendezvous
