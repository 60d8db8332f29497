#include "minibatch.h"

#include <utility>

namespace elasticdl::worker {

absl::StatusOr<Batch> Minibatch::Take() {
  MutexLock lock(mu_);
  while (!batch_.has_value()) ready_.Wait(mu_);
  absl::StatusOr<Batch> batch = *std::move(batch_);
  batch_ = absl::FailedPreconditionError("minibatch was taken before");
  return batch;
}

absl::StatusOr<Batch> Minibatch::TakeIfReady() {
  {
    MutexLock lock(mu_);
    if (!batch_.has_value()) return absl::UnavailableError("not ready");
    if (!batch_->ok()) return batch_->status();
  }
  return Take();
}

void Minibatch::Set(absl::StatusOr<Batch> batch) {
  {
    MutexLock lock(mu_);
    batch_ = std::move(batch);
  }
  ready_.NotifyAll();
}

}  // namespace elasticdl::worker
