#include "departed_workers.h"

#include <algorithm>

namespace elasticdl::master {

DepartedWorkers::State DepartedWorkers::Departed::state() const {
  if (loss.has_value()) return settled ? State::kClosed : State::kExplained;
  return settled ? State::kSettled : State::kOpen;
}

void DepartedWorkers::Settle(int64_t id) {
  const auto found = departed_.find(id);
  if (found != departed_.end()) found->second.settled = true;
}

void DepartedWorkers::SettleAll() {
  for (auto& [id, departed] : departed_) departed.settled = true;
}

bool DepartedWorkers::Explain(int64_t id, WorkerLoss loss,
                              const std::string& reason) {
  const auto found = departed_.find(id);
  if (found == departed_.end() || found->second.loss.has_value()) return false;
  found->second.loss = loss;
  found->second.reason = reason;
  return true;
}

std::vector<std::pair<int64_t, std::string>> DepartedWorkers::Expire(
    absl::Time now) {
  std::vector<std::pair<int64_t, std::string>> expired;
  for (auto& [id, departed] : departed_) {
    if (departed.loss.has_value() || departed.deadline > now) continue;
    // A crash would be held against a task; without a word of the pod nobody is
    // blamed.
    departed.loss = WorkerLoss::kPreempted;
    expired.emplace_back(id, departed.reason);
  }
  return expired;
}

absl::Time DepartedWorkers::next_deadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, departed] : departed_) {
    if (!departed.loss.has_value()) next = std::min(next, departed.deadline);
  }
  return next;
}

std::vector<std::pair<int64_t, DepartedWorkers::Departed>>
DepartedWorkers::TakeClosed() {
  std::vector<std::pair<int64_t, Departed>> closed;
  for (auto it = departed_.begin(); it != departed_.end();) {
    if (it->second.state() == State::kClosed) {
      closed.emplace_back(it->first, std::move(it->second));
      it = departed_.erase(it);
    } else {
      ++it;
    }
  }
  return closed;
}

}  // namespace elasticdl::master
