// A world of two whose other member has the same gradients.
#pragma once

#include <torch/types.h>

#include <cstring>
#include <limits>
#include <string>

#include "absl/time/time.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker::test {

using collective::DataType;

class Mirror : public collective::Communicator {
 public:
  int rank() const override { return 1; }
  int size() const override { return 2; }
  absl::Status AllReduce(void* data, size_t count, DataType type,
                         absl::Duration) override {
    const absl::Status status = Count();
    if (!status.ok()) return End(status, data, count * SizeOf(type));
    const torch::ScalarType scalar =
        type == DataType::kFloat32 ? torch::kFloat32 : torch::kBFloat16;
    torch::from_blob(data, {static_cast<int64_t>(count)}, scalar).mul_(2);
    MutexLock lock(mu_);
    if (poisoned_ >= 0 && calls_ == poisoned_call_) {
      static_cast<float*>(data)[poisoned_] =
          std::numeric_limits<float>::quiet_NaN();
    }
    return absl::OkStatus();
  }
  absl::Status Broadcast(void*, size_t, int, absl::Duration) override {
    return absl::UnimplementedError("");
  }
  absl::Status AllGather(const void*, void*, size_t, absl::Duration) override {
    return absl::UnimplementedError("");
  }
  absl::Status ReduceScatter(void*, size_t, DataType, absl::Duration) override {
    return absl::UnimplementedError("");
  }
  absl::Status Barrier(absl::Duration) override { return absl::OkStatus(); }
  void Abort(const std::string&) override {
    MutexLock lock(mu_);
    aborted_ = true;
  }

  // Of the call-th sum from the beginning, the other member's part has a NaN.
  void Poison(int call, int at) {
    MutexLock lock(mu_);
    poisoned_call_ = call;
    poisoned_ = at;
  }
  // After so many more calls all fail, and leave their data as it was, or not.
  void FailAfter(int calls, bool leave_data_alone = true) {
    MutexLock lock(mu_);
    fail_after_ = calls;
    leave_data_alone_ = leave_data_alone;
  }

 protected:
  absl::Status Count() {
    MutexLock lock(mu_);
    ++calls_;
    if (aborted_ || fail_after_-- == 0) {
      return absl::AbortedError("rank 0 is gone");
    }
    return absl::OkStatus();
  }

 private:
  absl::Status End(const absl::Status& status, void* data, size_t bytes) {
    MutexLock lock(mu_);
    aborted_ = true;
    if (!leave_data_alone_) memset(data, 0x55, bytes);
    return collective::MarkData(leave_data_alone_, status);
  }

  Mutex mu_;
  bool aborted_ ABSL_GUARDED_BY(mu_) = false;
  int fail_after_ ABSL_GUARDED_BY(mu_) = -1;
  bool leave_data_alone_ ABSL_GUARDED_BY(mu_) = true;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
  int poisoned_call_ ABSL_GUARDED_BY(mu_) = 0;
  int poisoned_ ABSL_GUARDED_BY(mu_) = -1;
};

}  // namespace elasticdl::worker::test
