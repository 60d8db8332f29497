// Connects the members of a world, for backends whose data does not go over our
// sockets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/deadline.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/mutex.h"
#include "tcp/address.h"
#include "tcp/member_watch.h"
#include "tcp/mesh.h"

namespace elasticdl::collective {

// Thread-safe: Abort may be called by any thread, the rest by one.
class Meeting {
 public:
  Meeting(const WorldSpec& world, TcpListener listener);

  // For the offer.
  const TcpAddress& address() const { return address_; }

  // Connects to all members, whose addresses are given by rank, and makes the
  // watch. Once only: on return nobody can dial any more. Until End, an abort
  // also ends the watch.
  absl::StatusOr<std::shared_ptr<MemberWatch>> Meet(
      const std::vector<TcpAddress>& addresses, Deadline& deadline);
  void End();
  void Abort(const std::string& reason);

 private:
  const WorldSpec world_;
  const TcpAddress address_;
  TcpListener listener_;
  AbortSignal abort_;
  Mutex mu_;
  // Shared with the communicator that is being made.
  std::shared_ptr<MemberWatch> watch_ ABSL_GUARDED_BY(mu_);
};

}  // namespace elasticdl::collective
