#include "checkpoint_history.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace elasticdl::master {
namespace {

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

}  // namespace

void CheckpointHistory::SetLineage(int64_t generation) {
  if (generation <= lineage()) return;
  // The new lineage was restored where the last one ended.
  if (!parts_.empty() && parts_.back().end == kNoEnd) {
    parts_.back().end = settled_step_;
  }
  parts_.push_back({generation, kNoEnd});
}

bool CheckpointHistory::Contains(int64_t generation, int64_t step) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    return part.generation == generation && step <= part.end;
  });
}

bool CheckpointHistory::Report(int64_t lineage, int64_t step,
                               const std::string& error) {
  if (!Contains(lineage, step)) return false;
  // Two members may have saved the same step: one complete version is enough.
  if (step > settled_step_ || (step == settled_step_ && error.empty())) {
    settled_step_ = step;
    error_ = error;
  }
  if (!error.empty() || step <= saved_step_) return false;
  saved_step_ = step;
  return true;
}

std::vector<checkpoint::Version> CheckpointHistory::Usable(
    const std::vector<checkpoint::Version>& found, int64_t step) const {
  std::vector<checkpoint::Version> usable;
  for (const checkpoint::Version& version : found) {
    if (version.lineage.run == run_ && version.version <= step &&
        Contains(version.lineage.generation, version.version)) {
      usable.push_back(version);
    }
  }
  std::sort(usable.begin(), usable.end(),
            [](const checkpoint::Version& a, const checkpoint::Version& b) {
              return a.version > b.version;
            });
  return usable;
}

void CheckpointHistory::FallBack(const checkpoint::Version* to) {
  error_.clear();
  if (to == nullptr) {
    parts_.clear();
    base_.reset();
    saved_step_ = settled_step_ = start_step_;
    return;
  }
  base_ = *to;
  saved_step_ = settled_step_ = to->version;
  while (!parts_.empty() && parts_.back().generation > to->lineage.generation) {
    parts_.pop_back();
  }
  if (!parts_.empty()) parts_.back().end = to->version;
}

v1::CheckpointState CheckpointHistory::ToProto() const {
  v1::CheckpointState state;
  for (const Part& part : parts_) {
    v1::CheckpointState::Part& added = *state.add_parts();
    added.set_generation(part.generation);
    added.set_end(part.end);
  }
  // After a restart a failed save is tried again.
  state.set_saved_step(saved_step_);
  *state.mutable_base() = master::ToProto(base_);
  return state;
}

void CheckpointHistory::FromProto(const v1::CheckpointState& state) {
  parts_.clear();
  for (const v1::CheckpointState::Part& part : state.parts()) {
    parts_.push_back({part.generation(), part.end()});
  }
  saved_step_ = settled_step_ = state.saved_step();
  error_.clear();
  base_ = master::FromProto(state.base(), run_);
}

v1::JournalRecord::FellBack ToProto(
    const std::optional<checkpoint::Version>& base) {
  v1::JournalRecord::FellBack proto;
  if (!base.has_value()) return proto;
  proto.set_step(base->version);
  proto.set_path(base->path);
  proto.set_lineage(base->lineage.generation);
  return proto;
}

std::optional<checkpoint::Version> FromProto(
    const v1::JournalRecord::FellBack& base, const std::string& run) {
  if (base.path().empty()) return std::nullopt;
  return checkpoint::Version{base.step(), base.path(), {run, base.lineage()}};
}

}  // namespace elasticdl::master
