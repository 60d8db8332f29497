// A world with NCCL for GPU memory and another communicator for host memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "elasticdl/collective/communicator.h"
#include "elasticdl/collective/device_communicator.h"
#include "nccl/runtime.h"
#include "nccl/world.h"
#include "tcp/member_watch.h"

namespace elasticdl::collective {

// Both parts end together, as soon as the watch, an operation of either or
// Abort ends the world.
class NcclCommunicator final : public Communicator,
                               public DeviceCommunicator,
                               private MemberWatch::Sleeper {
 public:
  struct Parts {
    // Shared with all worlds of this process.
    std::shared_ptr<NcclRuntime> runtime;
    // Shared with `world`.
    std::shared_ptr<MemberWatch> watch;
    std::unique_ptr<Communicator> host;
    // The runtime keeps it when this has gone, if others may still need it.
    std::shared_ptr<NcclWorld> world;
  };
  explicit NcclCommunicator(Parts parts);
  ~NcclCommunicator() override;

  int rank() const override { return parts_.host->rank(); }
  int size() const override { return parts_.host->size(); }
  absl::Status AllReduce(void* data, size_t count, DataType type,
                         absl::Duration timeout) override;
  absl::Status Broadcast(void* data, size_t bytes, int root,
                         absl::Duration timeout) override;
  absl::Status AllGather(const void* in, void* out, size_t bytes,
                         absl::Duration timeout) override;
  absl::Status ReduceScatter(void* data, size_t count, DataType type,
                             absl::Duration timeout) override;
  absl::Status Barrier(absl::Duration timeout) override;
  void Abort(const std::string& reason) override {
    parts_.watch->End(absl::AbortedError(reason));
  }
  DeviceCommunicator* device() override { return this; }

  int device_index() const override { return parts_.runtime->options().device; }
  absl::Status AllReduce(void* data, size_t count, DataType type,
                         DeviceEvent event, absl::Duration timeout) override;
  absl::Status Wait(DeviceEvent event, absl::Duration timeout) override;

 private:
  void Wake() override {
    parts_.host->Abort(std::string(parts_.watch->Check().message()));
  }
  // One call on memory of the host.
  absl::Status Call(const std::function<absl::Status()>& body);

  Parts parts_;
};

}  // namespace elasticdl::collective
