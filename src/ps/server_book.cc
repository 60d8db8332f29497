#include "elasticdl/ps/server_book.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"

namespace elasticdl::ps {

std::vector<int> ServerBook::Set(const v1::Servers& servers) {
  std::vector<int> moved;
  {
    MutexLock lock(mu_);
    addresses_.assign(servers.addresses().begin(), servers.addresses().end());
    last_.resize(std::max(last_.size(), addresses_.size()));
    for (size_t i = 0; i < addresses_.size(); ++i) {
      if (addresses_[i].empty() || addresses_[i] == last_[i]) continue;
      if (!last_[i].empty()) moved.push_back(static_cast<int>(i));
      last_[i] = addresses_[i];
    }
  }
  changed_.NotifyAll();
  return moved;
}

absl::StatusOr<net::Address> ServerBook::Find(int server,
                                              absl::Duration timeout) {
  const absl::Time end = Clock::Real().Now() + timeout;
  const auto index = static_cast<size_t>(server);
  MutexLock lock(mu_);
  while (!cancelled_) {
    if (index >= addresses_.size()) {
      return absl::UnavailableError(
          absl::StrCat("there is no parameter server ", server));
    }
    if (!addresses_[index].empty()) {
      return net::Address::Parse(addresses_[index]);
    }
    const absl::Duration left = end - Clock::Real().Now();
    if (left <= absl::ZeroDuration()) {
      return absl::UnavailableError(
          absl::StrCat("parameter server ", server, " is not there"));
    }
    changed_.WaitFor(mu_, left);
  }
  return absl::CancelledError("cancelled");
}

absl::Status ServerBook::Wait(absl::Duration time) {
  const absl::Time end = Clock::Real().Now() + time;
  MutexLock lock(mu_);
  while (!cancelled_) {
    const absl::Duration left = end - Clock::Real().Now();
    if (left <= absl::ZeroDuration()) return absl::OkStatus();
    changed_.WaitFor(mu_, left);
  }
  return absl::CancelledError("cancelled");
}

void ServerBook::Cancel() {
  {
    MutexLock lock(mu_);
    cancelled_ = true;
  }
  changed_.NotifyAll();
}

}  // namespace elasticdl::ps
