// An NCCL communicator, from its creation to its abort.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/deadline.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/collective/device_communicator.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "nccl/runtime.h"
#include "tcp/member_watch.h"

namespace elasticdl::collective {

// NCCL detects a death late or never, and never ends an operation whose peer is
// dead. So the watch detects the end of the world, waits are loops that poll,
// and a thread aborts the communicator as soon as the world has ended on this
// member, as on every survivor. If the abort of a broken world does not return,
// the process kills itself.
//
// Thread-safe; AllReduce is called by one thread at a time.
class NcclWorld final : private MemberWatch::Sleeper {
 public:
  struct Options {
    std::string id;
    int rank = 0;
    int size = 0;
  };
  // Begins to connect. The watch has been started; it is shared with the
  // communicator. The runtime outlives this.
  NcclWorld(NcclRuntime& runtime, std::shared_ptr<MemberWatch> watch,
            const Options& options);
  // Waits for the end, which End or Leave has begun.
  ~NcclWorld() override;

  // Until NCCL has connected all members.
  absl::Status AwaitReady(Deadline& deadline);
  // As in DeviceCommunicator.
  absl::Status AllReduce(void* data, size_t count, DataType type,
                         DeviceEvent event, Deadline& deadline);
  absl::Status Wait(DeviceEvent event, Deadline& deadline);

  // Ends the world if it has not ended, and returns when nothing of it is left
  // on the device.
  void End(const absl::Status& why);
  // The others may still need what this member has enqueued. Returns at once;
  // the world ends when all others have left it too, or after a while.
  void Leave();
  // Are there sums that nobody has waited for?
  bool has_open_sums() const { return has_open_sums_; }
  bool has_ended() const;

 private:
  void Wake() override;
  // Ends the world when it is time.
  void Main();
  // `idle`: no kernel of this world is on the device.
  void Abort(bool idle);
  bool AwaitAborted(absl::Duration patience);
  // One call of the table; the result, or Failed if the world is gone.
  int Call(const std::function<int(void* handle)>& body, absl::Status& error);
  // Polls until the call that returned `result` is no longer in progress. An
  // error ends the world.
  absl::Status Settle(int result, absl::Status error, Deadline& deadline);
  absl::Status CheckGrace(Deadline& grace);
  // Between two polls; ends early when the world does.
  void Pause(int& polls);
  absl::Status Failed(const absl::Status& status);

  NcclRuntime& runtime_;
  const std::shared_ptr<MemberWatch> watch_;
  // Used by the calling thread only.
  bool has_open_sums_ = false;
  Mutex calls_;
  // One thread at a time is in NCCL.
  void* handle_ ABSL_GUARDED_BY(calls_) = nullptr;
  mutable Mutex mu_;
  CondVar changed_;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
  bool aborted_ ABSL_GUARDED_BY(mu_) = false;
  Thread thread_;
};

}  // namespace elasticdl::collective
