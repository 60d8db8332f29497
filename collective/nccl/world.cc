#include "nccl/world.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/blame.h"
#include "elasticdl/common/end_as_killed.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

// A member that has completed the last sum may leave while others wait for
// their part of it, which then takes milliseconds. Only if the leaver has
// broken its end of the world does it not come.
constexpr absl::Duration kGrace = absl::Seconds(2);
// All members leave a world at about the same time.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(2);
constexpr absl::Duration kLastPatience = absl::Seconds(1);
constexpr absl::Duration kIdlePatience = absl::Minutes(10);
// Polls at full speed at first: small sums take tens of microseconds. Later the
// core is better used by the feeders.
constexpr int kQuickPolls = 100;
constexpr absl::Duration kPollPause = absl::Microseconds(50);
constexpr absl::Duration kLongestPollPause = absl::Microseconds(500);

int ToPluginType(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return kElasticdlNcclFloat32;
    case DataType::kBFloat16:
      return kElasticdlNcclBFloat16;
    case DataType::kFloat16:
      return kElasticdlNcclFloat16;
    case DataType::kInt64:
      return kElasticdlNcclInt64;
  }
  return -1;
}

}  // namespace

NcclWorld::NcclWorld(NcclRuntime& runtime, std::shared_ptr<MemberWatch> watch,
                     const Options& options)
    : runtime_(runtime), watch_(std::move(watch)) {
  absl::Status started = Failpoint("collective.nccl.init");
  if (started.ok()) {
    MutexLock lock(calls_);
    const int result =
        runtime_.table().init(options.id.data(), options.rank, options.size,
                              runtime_.options().device, &handle_);
    if (result != kElasticdlNcclInProgress) started = runtime_.ToStatus(result);
  }
  watch_->Add(this);
  if (!started.ok()) watch_->End(MarkNcclFailure(started));
  // Too late for the watch to wake us.
  if (!watch_->Check().ok()) Wake();
  thread_ = Thread("nccl-end", [this] { Main(); });
}

NcclWorld::~NcclWorld() {
  thread_.Join();
  watch_->Remove(this);
}

void NcclWorld::Wake() {
  MutexLock lock(mu_);
  over_ = true;
  changed_.NotifyAll();
}

bool NcclWorld::has_ended() const {
  MutexLock lock(mu_);
  return aborted_;
}

void NcclWorld::Main() {
  bool leaving = false;
  {
    MutexLock lock(mu_);
    while (!over_ && !leaving_) changed_.Wait(mu_);
    leaving = !over_;
  }
  if (leaving) {
    Deadline deadline(kLeaveTimeout);
    watch_->EndAfterOthers(deadline);
  }
  Abort(leaving);
}

void NcclWorld::Abort(bool idle) {
  const Thread caller("nccl-abort", [this] {
    [[maybe_unused]] const absl::Status visited =
        Failpoint("collective.nccl.abort");
    {
      MutexLock lock(calls_);
      if (handle_ != nullptr) {
        const absl::Status status =
            runtime_.ToStatus(runtime_.table().abort(handle_));
        if (!status.ok()) LogWarning("cannot abort: ", status.message());
        handle_ = nullptr;
      }
    }
    MutexLock lock(mu_);
    aborted_ = true;
    changed_.NotifyAll();
  });
  if (AwaitAborted(runtime_.options().abort_patience)) return;
  if (idle) {
    // It frees memory, for which CUDA waits until all kernels have ended: those
    // of the next world, too, where another member may be late.
    LogWarning("ncclCommAbort of a world that was left takes long");
    if (AwaitAborted(kIdlePatience)) return;
  }
  // This process may have been stopped for as long: the other thread gets a
  // moment.
  if (AwaitAborted(kLastPatience)) return;
  LogError("ncclCommAbort did not return within ",
           absl::FormatDuration(idle ? kIdlePatience
                                     : runtime_.options().abort_patience),
           "; this worker ends, to be replaced");
  std::fflush(nullptr);
  // As if somebody had taken the process away: nobody is to blame.
  EndAsKilled();
}

bool NcclWorld::AwaitAborted(absl::Duration patience) {
  Deadline deadline(patience);
  MutexLock lock(mu_);
  while (!aborted_ && deadline.Left() > absl::ZeroDuration()) {
    changed_.WaitFor(mu_, deadline.Left());
  }
  return aborted_;
}

int NcclWorld::Call(const std::function<int(void* handle)>& body,
                    absl::Status& error) {
  MutexLock lock(calls_);
  // The world has ended, and the watch knows why.
  if (handle_ == nullptr) return kElasticdlNcclFailed;
  const int result = body(handle_);
  if (result != kElasticdlNcclInProgress) error = runtime_.ToStatus(result);
  return result;
}

absl::Status NcclWorld::Failed(const absl::Status& status) {
  // What ended the world first explains it best.
  ELASTICDL_RETURN_IF_ERROR(watch_->Check());
  watch_->End(status);
  return status;
}

void NcclWorld::Pause(int& polls) {
  if (++polls <= kQuickPolls) {
    sched_yield();
    return;
  }
  MutexLock lock(mu_);
  if (over_) return;
  changed_.WaitFor(
      mu_, std::min(kPollPause * (polls - kQuickPolls), kLongestPollPause));
}

absl::Status NcclWorld::Settle(int result, absl::Status error,
                               Deadline& deadline) {
  int polls = 0;
  while (result == kElasticdlNcclInProgress) {
    ELASTICDL_RETURN_IF_ERROR(watch_->Check());
    result = Call(
        [this](void* handle) { return runtime_.table().state(handle); }, error);
    if (result != kElasticdlNcclInProgress) break;
    if (deadline.Left() == absl::ZeroDuration()) {
      return Failed(MarkNcclFailure(
          absl::DeadlineExceededError("NCCL is not ready in time")));
    }
    Pause(polls);
  }
  if (result == kElasticdlNcclDone) return absl::OkStatus();
  return Failed(result == kElasticdlNcclFailed ? MarkNcclFailure(error)
                                               : error);
}

absl::Status NcclWorld::AwaitReady(Deadline& deadline) {
  ELASTICDL_RETURN_IF_ERROR(watch_->Check());
  ELASTICDL_RETURN_IF_ERROR(
      Settle(kElasticdlNcclInProgress, absl::OkStatus(), deadline));
  return Failpoint("collective.nccl.ready");
}

absl::Status NcclWorld::AllReduce(void* data, size_t count, DataType type,
                                  DeviceEvent event, Deadline& deadline) {
  ELASTICDL_RETURN_IF_ERROR(watch_->Enter());
  ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.all_reduce"));
  has_open_sums_ = true;
  absl::Status error;
  int result = Call(
      [&](void* handle) {
        return runtime_.table().all_reduce(handle, data, count,
                                           ToPluginType(type), event);
      },
      error);
  ELASTICDL_RETURN_IF_ERROR(Settle(result, error, deadline));
  // Only now is the sum on the stream.
  result =
      Call([&](void* handle) { return runtime_.table().record(handle, event); },
           error);
  return Settle(result, error, deadline);
}

absl::Status NcclWorld::CheckGrace(Deadline& grace) {
  const int left = watch_->left_rank();
  if (left < 0 || grace.Left() > absl::ZeroDuration()) return absl::OkStatus();
  return Failed(
      Blame(left, absl::AbortedError(absl::StrCat(
                      "rank ", left, " left before the sum was done here"))));
}

absl::Status NcclWorld::Wait(DeviceEvent event, Deadline& deadline) {
  Deadline grace(kGrace);
  int polls = 0;
  while (true) {
    // In this order: an abort makes the event done, too.
    const int result = runtime_.table().query(runtime_.options().device, event);
    absl::Status error;
    if (result == kElasticdlNcclDeviceFailed) {
      return Failed(runtime_.ToStatus(result));
    }
    const int state = Call(
        [this](void* handle) { return runtime_.table().state(handle); }, error);
    ELASTICDL_RETURN_IF_ERROR(watch_->Check());
    if (!error.ok()) return Failed(MarkNcclFailure(error));
    if (result == kElasticdlNcclDone && state == kElasticdlNcclDone) {
      // A member that aborts leaves its kernels, which lets those of the others
      // end with whatever was in its buffers. It has said so before.
      ELASTICDL_RETURN_IF_ERROR(watch_->CheckNow());
      break;
    }
    ELASTICDL_RETURN_IF_ERROR(Failpoint("collective.all_reduce"));
    ELASTICDL_RETURN_IF_ERROR(CheckGrace(grace));
    if (deadline.Left() == absl::ZeroDuration()) {
      return Failed(MarkNcclFailure(absl::DeadlineExceededError(
          "the GPU has not finished the sum in time")));
    }
    Pause(polls);
  }
  has_open_sums_ = false;
  watch_->Complete();
  return absl::OkStatus();
}

void NcclWorld::End(const absl::Status& why) {
  watch_->End(why);
  MutexLock lock(mu_);
  over_ = true;
  changed_.NotifyAll();
  while (!aborted_) changed_.Wait(mu_);
}

void NcclWorld::Leave() {
  // At once: this process may end any moment.
  watch_->Leave();
  MutexLock lock(mu_);
  leaving_ = true;
  changed_.NotifyAll();
}

}  // namespace elasticdl::collective
