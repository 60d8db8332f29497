#include "resumption.h"

#include <algorithm>
#include <utility>

#include "elasticdl/common/check.h"

namespace elasticdl::master {

void Resumption::Begin(const std::vector<int64_t>& members, absl::Time deadline,
                       absl::Time step_deadline) {
  Wait wait;
  wait.deadline = deadline;
  wait.step_deadline = step_deadline;
  for (const int64_t id : members) {
    if (awaited_.count(id) != 0) wait.outcome.members.push_back(id);
  }
  wait_ = std::move(wait);
}

void Resumption::CameBack(int64_t id, const std::string& host, int64_t step) {
  ELASTICDL_CHECK(waiting());
  wait_->outcome.back[id] = {host, step};
}

void Resumption::Joined(int64_t id, const std::string& host) {
  ELASTICDL_CHECK(waiting());
  wait_->outcome.joiners.push_back({id, host});
}

bool Resumption::Complete(const Reachable& reachable) const {
  if (!waiting()) return false;
  const Outcome& outcome = wait_->outcome;
  return std::all_of(outcome.members.begin(), outcome.members.end(),
                     [&](int64_t id) {
                       return outcome.back.count(id) != 0 ||
                              (awaited_.count(id) == 0 && !reachable(id));
                     });
}

// Whoever has a stream is alive and may be in the middle of a long step; if it
// hangs there, it says so itself. Whoever has none is given up.
bool Resumption::OnDeadline(absl::Time now, const Reachable& reachable) {
  const Outcome& outcome = wait_->outcome;
  const bool busy = std::any_of(
      outcome.members.begin(), outcome.members.end(),
      [&](int64_t id) { return outcome.back.count(id) == 0 && reachable(id); });
  if (!busy || now >= wait_->step_deadline) return true;
  for (const int64_t id : outcome.members) {
    if (!reachable(id)) awaited_.erase(id);
  }
  wait_->deadline = wait_->step_deadline;
  return false;
}

Resumption::Outcome Resumption::End() {
  ELASTICDL_CHECK(waiting());
  Outcome outcome = std::move(wait_->outcome);
  wait_.reset();
  return outcome;
}

}  // namespace elasticdl::master
