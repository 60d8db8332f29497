// The world of one member.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/backends.h"
#include "core/offer.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

// Remembers the first abort. Thread-safe.
class AbortState {
 public:
  void Abort(const std::string& reason) {
    MutexLock lock(mu_);
    if (status_.ok()) status_ = absl::AbortedError(reason);
  }
  absl::Status Check() {
    MutexLock lock(mu_);
    return status_;
  }

 private:
  Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

class SingleCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  absl::Status AllReduce(void*, size_t, DataType, absl::Duration) override {
    return state_.Check();
  }
  absl::Status Broadcast(void*, size_t, int root, absl::Duration) override {
    if (root != 0)
      return absl::InvalidArgumentError("root is not in the world");
    return state_.Check();
  }
  absl::Status AllGather(const void* in, void* out, size_t bytes,
                         absl::Duration) override {
    if (bytes > 0 && in != out) std::memcpy(out, in, bytes);
    return state_.Check();
  }
  absl::Status ReduceScatter(void*, size_t, DataType, absl::Duration) override {
    return state_.Check();
  }
  absl::Status Barrier(absl::Duration) override { return state_.Check(); }
  void Abort(const std::string& reason) override { state_.Abort(reason); }

 private:
  AbortState state_;
};

class SingleConnector final : public Connector {
 public:
  explicit SingleConnector(const WorldSpec& world)
      : world_(world), offer_(SealOffer(world, "single", "")) {}
  const std::string& offer() const override { return offer_; }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(
      const std::vector<std::string>& offers, absl::Duration) override {
    if (offers.size() != 1) {
      return absl::InvalidArgumentError("a world of one has one offer");
    }
    ELASTICDL_RETURN_IF_ERROR(state_.Check());
    ELASTICDL_RETURN_IF_ERROR(
        OpenOffer(world_, 0, "single", offers[0]).status());
    return std::make_unique<SingleCommunicator>();
  }
  void Abort(const std::string& reason) override { state_.Abort(reason); }

 private:
  const WorldSpec world_;
  const std::string offer_;
  AbortState state_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Connector>> BeginSingle(const WorldSpec& world) {
  return std::make_unique<SingleConnector>(world);
}

}  // namespace elasticdl::collective
