// The state of the tasks at one moment, for a journal that is to stay short.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/crc32.h"
#include "elasticdl/common/status.h"
#include "task_manager.h"

namespace elasticdl::master {
namespace {

absl::StatusOr<std::vector<Range>> FindAll(
    const BlockIndex& blocks,
    const google::protobuf::RepeatedPtrField<v1::TaskState::Range>& protos) {
  std::vector<Range> ranges;
  for (const v1::TaskState::Range& proto : protos) {
    ELASTICDL_ASSIGN_OR_RETURN(const Range range, blocks.Find(proto));
    ranges.push_back(range);
  }
  return ranges;
}

// What block numbers and positions mean.
std::string Describe(const BlockIndex& blocks) {
  std::string text = absl::StrCat(blocks.records_per_block(), "\n");
  for (const v1::LedgerShard& shard : blocks.shards()) {
    absl::StrAppend(&text, shard.begin(), " ", shard.end(), " ", shard.name(),
                    "\n");
  }
  return text;
}

}  // namespace

v1::TaskState::Range ToProto(const Range& range) {
  v1::TaskState::Range proto;
  proto.set_epoch(range.epoch);
  proto.set_block(range.block);
  proto.set_begin(range.begin);
  proto.set_end(range.end);
  return proto;
}

absl::StatusOr<Range> BlockIndex::Find(
    const v1::TaskState::Range& range) const {
  const bool known = range.block() >= 0 && range.block() < num_blocks();
  const Block block = known ? at(range.block()) : Block();
  if (!known || range.begin() < block.begin || range.end() > block.end ||
      range.begin() > range.end()) {
    return absl::DataLossError(absl::StrCat(
        "the journal has positions ", range.begin(), "-", range.end(),
        " of block ", range.block(), ", which are not in the data"));
  }
  return Range{range.epoch(), range.block(), range.begin(), range.end()};
}

v1::TaskState::Queue RangeQueue::State() const {
  v1::TaskState::Queue state;
  state.set_epoch(epoch_);
  state.set_next_block(next_block_);
  for (const Range& range : returned_) *state.add_returned() = ToProto(range);
  for (const Range& range : set_aside_) *state.add_set_aside() = ToProto(range);
  for (const auto& [place, at] : failures_) {
    for (const auto& [position, count] : at) {
      v1::TaskState::Failures& added = *state.add_failures();
      added.set_epoch(place.first);
      added.set_block(place.second);
      added.set_position(position);
      added.set_count(count);
    }
  }
  return state;
}

absl::Status RangeQueue::LoadState(const v1::TaskState::Queue& state) {
  if (state.epoch() < 0 || state.next_block() < 0 ||
      state.next_block() > blocks_.num_blocks()) {
    return absl::DataLossError(absl::StrCat("the journal is at block ",
                                            state.next_block(), " of ",
                                            blocks_.num_blocks()));
  }
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<Range> returned,
                             FindAll(blocks_, state.returned()));
  ELASTICDL_ASSIGN_OR_RETURN(set_aside_, FindAll(blocks_, state.set_aside()));
  returned_.assign(returned.begin(), returned.end());
  failures_.clear();
  for (const v1::TaskState::Failures& failure : state.failures()) {
    failures_[{failure.epoch(), failure.block()}][failure.position()] =
        failure.count();
  }
  StartEpoch(state.epoch(), state.next_block());
  return absl::OkStatus();
}

uint32_t TaskManager::DataChecksum() const {
  return Crc32c(absl::StrCat(Describe(training_.blocks()),
                             Describe(prediction_.blocks()), options_.shuffle,
                             " ", options_.shuffle ? options_.seed : 0));
}

v1::TaskState TaskManager::State() const {
  v1::TaskState state;
  state.set_data_checksum(DataChecksum());
  *state.mutable_training() = training_.State();
  *state.mutable_prediction() = prediction_.State();
  state.set_next_task_id(next_task_id_);
  state.set_step(step_);
  state.set_committed_records(committed_records_);
  state.set_predicted_records(predicted_records_);
  for (const auto& [task_id, held] : held_) {
    if (held.type == v1::EVALUATION) continue;
    v1::TaskState::Held& added = *state.add_held();
    added.set_task_id(task_id);
    added.set_worker_id(held.worker_id);
    added.set_type(held.type);
    *added.mutable_range() = ToProto(held.range);
  }
  for (const auto& [worker_id, worker] : workers_) {
    for (const FinishedTask& task : worker.finished) {
      if (task.type == v1::EVALUATION) continue;
      v1::TaskState::Finished& added = *state.add_finished();
      added.set_task_id(task.task_id);
      added.set_worker_id(worker_id);
      added.set_end(task.end);
    }
  }
  for (const QuarantinedRange& bad : quarantined_) {
    if (bad.type == v1::EVALUATION) continue;
    v1::TaskState::Quarantined& added = *state.add_quarantined();
    added.set_type(bad.type);
    *added.mutable_range() = bad.range;
    added.set_failures(bad.failures);
    added.set_last_error(bad.last_error);
  }
  for (const auto& [worker_id, bytes] : output_bytes_) {
    (*state.mutable_output_bytes())[worker_id] = bytes;
  }
  if (last_committed_.has_value()) {
    *state.mutable_last_committed() = ToProto(*last_committed_);
  }
  state.set_evaluated_version(evaluation_.evaluated_version());
  state.set_stop_reason(stop_reason_);
  state.set_train_end(static_cast<int32_t>(train_end_));
  state.set_train_end_failures(train_end_failures_);
  return state;
}

void TaskManager::LoadHeld(absl::Time now, const v1::TaskState::Held& held,
                           const Range& range) {
  held_[held.task_id()] = Held{held.worker_id(), held.type(), range};
  CountHeld(held.type(), range, 1);
  Worker& worker = workers_[held.worker_id()];
  worker.tasks.push_back(held.task_id());
  clock_.Begin(held.worker_id(), now);
}

absl::Status TaskManager::LoadState(absl::Time now,
                                    const v1::TaskState& state) {
  if (state.data_checksum() != DataChecksum()) {
    return absl::DataLossError(
        "the journal does not fit the data of this job: files, their sizes, "
        "the size of tasks or the shuffling have changed");
  }
  if (state.train_end() < 0 ||
      state.train_end() > static_cast<int32_t>(TrainEnd::kFailed)) {
    return absl::DataLossError("the journal is of another version");
  }
  ELASTICDL_RETURN_IF_ERROR(training_.LoadState(state.training()));
  ELASTICDL_RETURN_IF_ERROR(prediction_.LoadState(state.prediction()));
  for (const v1::TaskState::Held& held : state.held()) {
    Range range;
    if (const RangeQueue* queue =
            held.type() == v1::EVALUATION ? nullptr : QueueOf(held.type())) {
      ELASTICDL_ASSIGN_OR_RETURN(range, queue->blocks().Find(held.range()));
    }
    LoadHeld(now, held, range);
  }
  for (const v1::TaskState::Finished& task : state.finished()) {
    workers_[task.worker_id()].finished.push_back(
        {task.task_id(), task.end(), v1::NONE});
  }
  quarantined_.clear();
  for (const v1::TaskState::Quarantined& bad : state.quarantined()) {
    quarantined_.push_back(
        {bad.type(), bad.range(), bad.failures(), bad.last_error()});
  }
  output_bytes_.clear();
  output_bytes_.insert(state.output_bytes().begin(),
                       state.output_bytes().end());
  if (state.has_last_committed()) {
    ELASTICDL_ASSIGN_OR_RETURN(last_committed_,
                               training_.blocks().Find(state.last_committed()));
  }
  next_task_id_ = state.next_task_id();
  step_ = state.step();
  committed_records_ = state.committed_records();
  predicted_records_ = state.predicted_records();
  evaluation_.SetEvaluated(state.evaluated_version());
  stop_reason_ = state.stop_reason();
  train_end_ = static_cast<TrainEnd>(state.train_end());
  train_end_failures_ = state.train_end_failures();
  return absl::OkStatus();
}

}  // namespace elasticdl::master
