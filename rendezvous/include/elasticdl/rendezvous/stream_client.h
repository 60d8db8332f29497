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
    absl::Duration keepalive = absl::Seconds(1);
    absl::Duration keepalive_timeout = absl::Seconds(5);
  };

  // DEADLINE_EXCEEDED when nobody answers at the address in time.
  static absl::StatusOr<std::unique_ptr<StreamClient>> Connect(
      const Options& options);
  virtual ~StreamClient() = default;

  // Queues a message; never blocks. Dropped when the stream is gone.
  virtual void Send(v1::WorkerMessage message) = 0;

  // The next message, or nothing after `timeout` or when the stream has ended
  // and all its messages were taken.
  virtual std::optional<v1::MasterMessage> Receive(absl::Duration timeout) = 0;

  // True once the stream has ended and Receive has nothing more; `status` then
  // says why.
  virtual bool ended() const = 0;
  virtual absl::Status status() const = 0;

  // Waits until all queued messages are written or the stream is gone.
  virtual absl::Status Flush(absl::Duration timeout) = 0;

  // Ends the stream in an orderly way: what was sent is delivered. Idempotent;
  // the destructor does it too.
  virtual void Close(absl::Duration timeout) = 0;
};

}  // namespace elasticdl::rendezvous
