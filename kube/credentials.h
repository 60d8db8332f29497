// Who we are to the API server, renewed as it must be.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/kube/cluster_config.h"

namespace elasticdl::kube {

// Constant once made; shared by the calls that use it.
struct Identity {
  std::string token;
  std::string client_cert_pem;
  std::string client_key_pem;
  std::string username;
  std::string password;
  // When to have it anew, on the wall clock.
  absl::Time stale_at = absl::InfiniteFuture();
  // 1, 2, …: counts the renewals.
  uint64_t generation = 0;
};

// Thread-safe. A token file is read again each minute, a login program runs
// again when its credential expires, both also when the server refuses what
// they gave. However many calls need it, one of them fetches and the others
// wait.
class Credentials {
 public:
  explicit Credentials(const ClusterConfig& config,
                       const Clock& clock = Clock::Real());
  ~Credentials();

  // UNAUTHENTICATED when it cannot be had, CANCELLED.
  absl::StatusOr<std::shared_ptr<const Identity>> Get(
      const Cancellation* cancel) {
    return Obtain(0, cancel);
  }
  // One that is newer than `refused`, which the server did not accept.
  absl::StatusOr<std::shared_ptr<const Identity>> Renew(
      const Identity& refused, const Cancellation* cancel) {
    return Obtain(refused.generation, cancel);
  }
  // False: Renew can only give the same again.
  bool renewable() const;

 private:
  // One fetch that is under way; those who wait for it own it too.
  struct Fetching;

  absl::StatusOr<std::shared_ptr<const Identity>> Obtain(
      uint64_t refused, const Cancellation* cancel);
  absl::StatusOr<Identity> Fetch(const Cancellation* cancel);
  absl::StatusOr<Identity> FromTokenFile();
  absl::StatusOr<std::shared_ptr<const Identity>> Finish(
      Fetching& fetching, absl::StatusOr<Identity> fetched, uint64_t refused);

  const ClusterConfig config_;
  const Clock& clock_;

  Mutex mu_;
  std::shared_ptr<const Identity> current_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Fetching> fetching_ ABSL_GUARDED_BY(mu_);
  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace elasticdl::kube
