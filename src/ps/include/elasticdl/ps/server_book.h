// The addresses of the parameter servers, as sent by the master.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/net/socket.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::ps {

// Thread-safe.
class ServerBook {
 public:
  explicit ServerBook(const v1::Servers& servers) { Set(servers); }

  // Those that are elsewhere than they were last.
  std::vector<int> Set(const v1::Servers& servers);
  // Waits until the server is there. UNAVAILABLE after `timeout`, and at once
  // for a number that no server has; CANCELLED after Cancel.
  absl::StatusOr<net::Address> Find(int server, absl::Duration timeout);
  // Waits that long. CANCELLED after Cancel.
  absl::Status Wait(absl::Duration time);
  // Nobody waits any more.
  void Cancel();

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mu_);
  // The last that was not empty.
  std::vector<std::string> last_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace elasticdl::ps
