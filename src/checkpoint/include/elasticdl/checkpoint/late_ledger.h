// The ledger of a snapshot whose writing starts before the master has sent the
// ledger.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/v1/ledger.pb.h"

namespace elasticdl::checkpoint {

// The writer's side. Thread-safe.
class LateLedger {
 public:
  struct Answer {
    v1::Ledger ledger;
    // Of the lineage.
    std::string run;
  };

  // Nothing: not known yet. CANCELLED: there will be none.
  std::optional<absl::StatusOr<Answer>> Poll() const {
    MutexLock lock(mu_);
    return answer_;
  }
  absl::StatusOr<Answer> Wait() const {
    MutexLock lock(mu_);
    // LedgerPromise always gives an answer.
    while (!answer_.has_value()) changed_.Wait(mu_);
    return *answer_;
  }

 private:
  friend class LedgerPromise;
  void Give(absl::StatusOr<Answer> answer) {
    MutexLock lock(mu_);
    answer_ = std::move(answer);
    changed_.NotifyAll();
  }

  mutable Mutex mu_;
  mutable CondVar changed_;
  std::optional<absl::StatusOr<Answer>> answer_ ABSL_GUARDED_BY(mu_);
};

// The other side: if it is destroyed without an answer, there is no ledger.
// Thread-compatible; move-only.
class LedgerPromise {
 public:
  LedgerPromise() : late_(std::make_shared<LateLedger>()) {}
  ~LedgerPromise() { Drop(); }
  LedgerPromise(LedgerPromise&&) = default;
  LedgerPromise& operator=(LedgerPromise&& other) noexcept {
    if (this == &other) return *this;
    Drop();
    late_ = std::move(other.late_);
    return *this;
  }

  // The writer is its second owner.
  const std::shared_ptr<LateLedger>& late() const { return late_; }
  void Keep(LateLedger::Answer answer) {
    if (auto late = std::move(late_)) late->Give(std::move(answer));
  }
  void Drop() {
    if (auto late = std::move(late_)) {
      late->Give(absl::CancelledError("there is no ledger for it"));
    }
  }

 private:
  std::shared_ptr<LateLedger> late_;
};

}  // namespace elasticdl::checkpoint
