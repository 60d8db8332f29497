// The credentials for the API server, renewed when necessary.
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

// Never changed; shared by the calls that use it.
struct Identity {
  std::string token;
  std::string client_cert_pem;
  std::string client_key_pem;
  std::string username;
  std::string password;
  // When it must be fetched again, on the wall clock.
  absl::Time stale_at = absl::InfiniteFuture();
  // 1, 2, …: the number of the fetch.
  uint64_t generation = 0;
};

// Thread-safe. A token file is read again each minute. A login program runs
// again when its credential expires. Both happen too when the server refuses
// the credential. If several calls need a new one, one of them fetches it and
// the others wait.
class Credentials {
 public:
  explicit Credentials(const ClusterConfig& config,
                       const Clock& clock = Clock::Real());
  ~Credentials();

  // UNAUTHENTICATED when it cannot be fetched, CANCELLED.
  absl::StatusOr<std::shared_ptr<const Identity>> Get(
      const Cancellation* cancel) {
    return Obtain(0, cancel);
  }
  // A newer one than `refused`, which the server did not accept.
  absl::StatusOr<std::shared_ptr<const Identity>> Renew(
      const Identity& refused, const Cancellation* cancel) {
    return Obtain(refused.generation, cancel);
  }
  // False: Renew would only return the same again.
  bool renewable() const;

 private:
  // A fetch in progress, shared with the calls that wait for it.
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
