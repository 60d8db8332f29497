#include "server_checkpoints.h"

#include <algorithm>

namespace elasticdl::master {

bool ServerCheckpoints::Due(int64_t step, When when) const {
  if (Settled(step)) return false;
  if (when == When::kOver) return true;
  if (!suspects_.empty()) return false;
  if (when == When::kBreakingOff) return true;
  // Not "at a multiple": steps may pass while a save goes on.
  return options_.interval > 0 &&
         step / options_.interval >
             std::max<int64_t>(0, last_step_) / options_.interval;
}

void ServerCheckpoints::BeginPause() {
  state_ = State::kPausing;
  ++pause_;
  paused_.clear();
}

void ServerCheckpoints::OnPaused(int64_t worker_id, int64_t number) {
  if (state_ == State::kPausing && number == pause_) paused_.insert(worker_id);
}

void ServerCheckpoints::BeginSave(int64_t worker_id) {
  state_ = State::kSaving;
  saver_ = worker_id;
}

void ServerCheckpoints::EndRead(int64_t step) {
  step_before_ = last_step_;
  last_step_ = step;
  writer_ = saver_;
  Cancel();
}

void ServerCheckpoints::End(int64_t worker_id, int64_t step) {
  if (worker_id == writer_ && step == last_step_) writer_ = -1;
  if (state_ != State::kSaving || worker_id != saver_) return;
  last_step_ = std::max(last_step_, step);
  Cancel();
}

void ServerCheckpoints::WriterLost() {
  writer_ = -1;
  last_step_ = step_before_;
}

void ServerCheckpoints::Cancel() {
  state_ = State::kIdle;
  saver_ = -1;
  paused_.clear();
}

void ServerCheckpoints::AddSuspect(const v1::LedgerRange& range) {
  // Not twice: after a restart the same ranges are handed out again.
  Clear(range.shard(), range.epoch(), range.begin(), range.end());
  suspects_[{range.epoch(), range.shard()}][range.begin()] = range.end();
}

void ServerCheckpoints::OnCommit(const CommittedRange& range) {
  Clear(range.shard, range.epoch, range.begin, range.end);
}

void ServerCheckpoints::OnQuarantined(const v1::LedgerRange& range) {
  torn_ |= Overlaps(range);
  Clear(range.shard(), range.epoch(), range.begin(), range.end());
}

bool ServerCheckpoints::Overlaps(const v1::LedgerRange& range) const {
  const auto found = suspects_.find({range.epoch(), range.shard()});
  if (found == suspects_.end()) return false;
  for (const auto& [begin, end] : found->second) {
    if (begin < range.end() && range.begin() < end) return true;
  }
  return false;
}

void ServerCheckpoints::Clear(const std::string& shard, int32_t epoch,
                              int64_t begin, int64_t end) {
  const auto found = suspects_.find({epoch, shard});
  if (found == suspects_.end()) return;
  std::map<int64_t, int64_t>& ranges = found->second;
  auto it = ranges.upper_bound(begin);
  if (it != ranges.begin()) --it;
  while (it != ranges.end() && it->first < end) {
    const auto [from, to] = *it;
    if (to <= begin) {
      ++it;
      continue;
    }
    it = ranges.erase(it);
    if (from < begin) ranges[from] = begin;
    if (to > end) it = ranges.emplace(end, to).first;
  }
  if (ranges.empty()) suspects_.erase(found);
}

}  // namespace elasticdl::master
