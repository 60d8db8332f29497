// A part of the model, or one of its two copies, hosted by a parameter-server
// process.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/ps/bucket_mover.h"
#include "elasticdl/ps/server.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::programs {

// Thread-safe.
class HostedPart {
 public:
  struct Options {
    ps::ServerOptions server;
    // At which others reach it.
    std::string host;
    // Where the other parts are.
    v1::Servers servers;
    // Any thread.
    std::function<void(v1::WorkerMessage message)> send;
    // It cannot go on; not called after Stop. Any thread.
    std::function<void()> ended;
  };
  static absl::StatusOr<std::shared_ptr<HostedPart>> Start(
      const Options& options);
  ~HostedPart();

  int part() const { return part_; }
  const std::string& address() const { return address_; }
  uint16_t port() const { return server_->port(); }
  const std::string& log_dir() const { return log_dir_; }
  ps::Server& server() { return *server_; }

  void SetServers(const v1::Servers& servers) { mover_->SetServers(servers); }
  void Move(v1::MoveBuckets step) { mover_->Begin(std::move(step)); }
  void Assign(const v1::PsAssignment& assignment);

  absl::Status Apply(const v1::PsEntry& entry);

  // Idempotent, does not block.
  void Stop();
  // After Stop: until nobody is in Apply.
  void AwaitApply();
  // After Stop: why it could not go on, if it ended before.
  absl::Status Wait() { return server_->Wait(); }

 private:
  HostedPart(int part, const Options& options,
             std::unique_ptr<ps::Server> server);

  const int part_;
  const std::string address_;
  const std::string log_dir_;
  const std::function<void()> ended_;
  std::atomic<bool> stopped_ = false;
  // Held in Apply.
  Mutex applying_;
  const std::unique_ptr<ps::Server> server_;
  const std::unique_ptr<ps::BucketMover> mover_;
  // Last: it uses what is above.
  Thread watch_;
};

}  // namespace elasticdl::programs
