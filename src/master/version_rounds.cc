#include "version_rounds.h"

#include <algorithm>
#include <utility>

namespace elasticdl::master {

bool VersionRounds::Add(Gradient gradient) {
  Drop(gradient.worker_id);
  if (TooOld(gradient)) return false;
  waiting_.push_back(std::move(gradient));
  return true;
}

void VersionRounds::Drop(int64_t worker_id) {
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [&](const Gradient& gradient) {
                                  return gradient.worker_id == worker_id;
                                }),
                 waiting_.end());
}

bool VersionRounds::Waits(int64_t worker_id) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const Gradient& gradient) {
                       return gradient.worker_id == worker_id;
                     });
}

std::vector<VersionRounds::Gradient> VersionRounds::Next(bool more) {
  std::vector<Gradient> taken;
  const auto wanted = static_cast<size_t>(options_.grads_to_wait);
  if (open() || waiting_.empty()) return taken;
  if (more && waiting_.size() < wanted) return taken;
  const size_t count = std::min(wanted, waiting_.size());
  open_.emplace();
  applied_.clear();
  open_->set_version(++version_);
  for (size_t i = 0; i < count; ++i) {
    const Gradient& gradient = waiting_.front();
    v1::PsRanges& name = *open_->add_pushes();
    name.set_shard(gradient.range.shard());
    name.set_epoch(gradient.range.epoch());
    name.add_bounds(gradient.range.begin());
    name.add_bounds(gradient.range.end());
    taken.push_back(gradient);
    waiting_.pop_front();
  }
  return taken;
}

std::vector<VersionRounds::Gradient> VersionRounds::TakeStale() {
  std::vector<Gradient> stale;
  for (const Gradient& gradient : waiting_) {
    if (TooOld(gradient)) stale.push_back(gradient);
  }
  for (const Gradient& gradient : stale) Drop(gradient.worker_id);
  return stale;
}

std::vector<VersionRounds::Gradient> VersionRounds::TakeWaiting() {
  std::vector<Gradient> taken(waiting_.begin(), waiting_.end());
  waiting_.clear();
  return taken;
}

bool VersionRounds::Applied(int server, int64_t version) {
  if (!open() || version != version_ || server < 0 ||
      server >= options_.servers) {
    return false;
  }
  applied_.insert(server);
  if (applied_.size() < static_cast<size_t>(options_.servers)) return false;
  open_.reset();
  return true;
}

void VersionRounds::Resume(const v1::PsCommit& commit) {
  version_ = commit.version();
  open_.reset();
  if (commit.pushes_size() > 0) open_ = commit;
  applied_.clear();
}

}  // namespace elasticdl::master
