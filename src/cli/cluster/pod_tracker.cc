#include "cluster/pod_tracker.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/clock.h"

namespace elasticdl::cli {

PodTracker::PodTracker(kube::Client& client, const std::string& selector) {
  kube::Watch::Options options;
  options.resource = kube::Pods();
  options.namespace_name = client.namespace_name();
  options.selector = selector;
  watch_ = std::make_unique<kube::Watch>(
      client.transport(), options,
      [this](const kube::WatchEvent& event) { Take(event); });
}

void PodTracker::Take(const kube::WatchEvent& event) {
  using Kind = kube::WatchEvent::Kind;
  {
    MutexLock lock(mu_);
    ++now_.version;
    switch (event.kind) {
      case Kind::kListed:
      case Kind::kAdded:
      case Kind::kModified: {
        cluster::PodView view = cluster::ViewPod(event.object);
        now_.pods[view.name] = std::move(view);
        break;
      }
      case Kind::kDeleted: {
        cluster::PodView view = cluster::ViewPod(event.object);
        now_.pods.erase(view.name);
        now_.gone[view.name] = std::move(view);
        break;
      }
      case Kind::kSynced:
        now_.synced = true;
        break;
      case Kind::kTrouble:
        now_.trouble = event.error;
        break;
      case Kind::kRecovered:
        now_.trouble = absl::OkStatus();
        break;
    }
  }
  changed_.NotifyAll();
}

PodTracker::Snapshot PodTracker::Get() const {
  MutexLock lock(mu_);
  return now_;
}

bool PodTracker::WaitChange(int64_t version, absl::Duration timeout) const {
  const absl::Time deadline = Clock::Real().Now() + timeout;
  MutexLock lock(mu_);
  while (now_.version == version && !interrupted_) {
    const absl::Duration left = deadline - Clock::Real().Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mu_, left);
  }
  return !interrupted_;
}

void PodTracker::Interrupt() {
  {
    MutexLock lock(mu_);
    interrupted_ = true;
  }
  changed_.NotifyAll();
}

bool PodTracker::interrupted() const {
  MutexLock lock(mu_);
  return interrupted_;
}

absl::Status WaitUntilGone(kube::Client& client, const std::string& selector,
                           absl::Duration timeout) {
  PodTracker tracker(client, selector);
  const absl::Time deadline = Clock::Real().Now() + timeout;
  while (true) {
    const PodTracker::Snapshot now = tracker.Get();
    if (now.synced && now.pods.empty()) return absl::OkStatus();
    if (!tracker.WaitChange(now.version, deadline - Clock::Real().Now())) {
      std::vector<std::string> names;
      for (const auto& [name, pod] : now.pods) names.push_back(name);
      return absl::DeadlineExceededError(absl::StrCat(
          "still there after ", absl::FormatDuration(timeout), ": ",
          names.empty() ? "unknown" : absl::StrJoin(names, ", "),
          now.trouble.ok() ? "" : ": ", now.trouble.message()));
    }
  }
}

}  // namespace elasticdl::cli
