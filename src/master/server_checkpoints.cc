#include "server_checkpoints.h"

#include <algorithm>

namespace elasticdl::master {

bool ServerCheckpoints::Due(int64_t step, bool last) const {
  if (!options_.wanted || !suspects_.empty() || step <= last_step_) {
    return false;
  }
  if (last) return true;
  // Not "at a multiple": steps may pass while a save goes on.
  return options_.interval > 0 &&
         step / options_.interval >
             std::max<int64_t>(0, last_step_) / options_.interval;
}

void ServerCheckpoints::BeginPause() {
  state_ = State::kPausing;
  ++pause_;
}

void ServerCheckpoints::BeginSave(int64_t worker_id) {
  state_ = State::kSaving;
  saver_ = worker_id;
}

void ServerCheckpoints::End(int64_t step) {
  last_step_ = std::max(last_step_, step);
  Cancel();
}

void ServerCheckpoints::Cancel() {
  state_ = State::kIdle;
  saver_ = -1;
}

void ServerCheckpoints::AddSuspect(const v1::LedgerRange& range) {
  suspects_.emplace(range.shard(), range.epoch(), range.begin());
}

void ServerCheckpoints::OnCommit(const CommittedRange& range) {
  Clear(range.shard, range.epoch, range.begin, range.end);
}

void ServerCheckpoints::OnQuarantined(const v1::LedgerRange& range) {
  Clear(range.shard(), range.epoch(), range.begin(), range.end());
}

void ServerCheckpoints::Clear(const std::string& shard, int32_t epoch,
                              int64_t begin, int64_t end) {
  const auto from = suspects_.lower_bound(Place(shard, epoch, begin));
  const auto to = suspects_.lower_bound(Place(shard, epoch, end));
  suspects_.erase(from, to);
}

}  // namespace elasticdl::master
