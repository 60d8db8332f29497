// What is kept of the tasks beyond the process: the ledger in a checkpoint.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "task_manager.h"

namespace elasticdl::master {
namespace {

absl::Status Differs(absl::string_view what, absl::string_view in_ledger,
                     absl::string_view here) {
  return absl::FailedPreconditionError(
      absl::StrCat("the ledger is of another job: ", what, " is ", in_ledger,
                   " there and ", here, " here"));
}

bool SameShard(const v1::LedgerShard& a, const v1::LedgerShard& b) {
  return a.name() == b.name() && a.begin() == b.begin() && a.end() == b.end();
}

absl::StatusOr<std::vector<Range>> ParseRanges(
    const BlockIndex& blocks,
    const google::protobuf::RepeatedPtrField<v1::LedgerRange>& protos) {
  std::vector<Range> ranges;
  for (const v1::LedgerRange& proto : protos) {
    ELASTICDL_ASSIGN_OR_RETURN(Range range, blocks.Find(proto));
    ranges.push_back(range);
  }
  return ranges;
}

absl::Status CheckDisjoint(const BlockIndex& blocks, std::vector<Range> a,
                           const std::vector<Range>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end(), [](const Range& x, const Range& y) {
    return std::tie(x.epoch, x.block, x.begin) <
           std::tie(y.epoch, y.block, y.begin);
  });
  for (size_t i = 1; i < a.size(); ++i) {
    if (a[i - 1].epoch == a[i].epoch && a[i - 1].block == a[i].block &&
        a[i - 1].end > a[i].begin) {
      return absl::DataLossError(
          absl::StrCat("the ledger has overlapping ranges of shard '",
                       blocks.at(a[i].block).shard->name(), "', epoch ",
                       a[i].epoch, ": ", a[i - 1].begin, "-", a[i - 1].end,
                       " and ", a[i].begin, "-", a[i].end));
    }
  }
  return absl::OkStatus();
}

// The records that a queue at (epoch, next_block) has handed out or passed
// over: all of former epochs and of the first blocks of this one.
class PassedBlocks {
 public:
  PassedBlocks(const RangeQueue& like, int32_t epoch, int64_t next_block)
      : queue_(like.blocks(), like.options()) {
    queue_.Load(epoch, next_block, {});
    passed_ = queue_.BlocksBefore(next_block);
    std::sort(passed_.begin(), passed_.end());
  }
  bool Contains(const Range& range) const {
    return range.epoch < queue_.epoch() ||
           (range.epoch == queue_.epoch() &&
            std::binary_search(passed_.begin(), passed_.end(), range.block));
  }
  int64_t num_records() const {
    const int64_t per_epoch = queue_.blocks().num_records();
    return queue_.epoch() * per_epoch + per_epoch - queue_.NumRecordsLeft();
  }

 private:
  RangeQueue queue_;
  std::vector<int64_t> passed_;
};

}  // namespace

v1::Ledger TaskManager::Snapshot() const {
  const BlockIndex& blocks = training_.blocks();
  v1::Ledger ledger;
  ledger.set_step(step_);
  ledger.set_epoch(training_.epoch());
  ledger.set_next_block(training_.next_block());
  for (const auto& [task_id, held] : held_) {
    if (held.type == v1::TRAINING) {
      *ledger.add_outstanding() = blocks.ToProto(held.range);
    }
  }
  for (const Range& range : training_.returned()) {
    *ledger.add_outstanding() = blocks.ToProto(range);
  }
  for (const Range& range : training_.set_aside()) {
    *ledger.add_quarantined() = blocks.ToProto(range);
  }
  for (const v1::LedgerShard& shard : blocks.shards()) {
    *ledger.add_shards() = shard;
  }
  ledger.set_records_per_block(blocks.records_per_block());
  ledger.set_seed(options_.seed);
  ledger.set_shuffle(options_.shuffle);
  ledger.set_committed_records(committed_records_);
  return ledger;
}

absl::Status TaskManager::CheckSameData(const v1::Ledger& ledger) const {
  const BlockIndex& blocks = training_.blocks();
  if (ledger.shards_size() != static_cast<int>(blocks.shards().size())) {
    return Differs("the number of shards", absl::StrCat(ledger.shards_size()),
                   absl::StrCat(blocks.shards().size()));
  }
  for (int i = 0; i < ledger.shards_size(); ++i) {
    if (!SameShard(ledger.shards(i), blocks.shards()[i])) {
      return Differs(absl::StrCat("shard ", i), Describe(ledger.shards(i)),
                     Describe(blocks.shards()[i]));
    }
  }
  if (ledger.records_per_block() != blocks.records_per_block()) {
    return Differs(
        "records per task (minibatch_size times "
        "num_minibatches_per_task)",
        absl::StrCat(ledger.records_per_block()),
        absl::StrCat(blocks.records_per_block()));
  }
  if (ledger.shuffle() != options_.shuffle) {
    return Differs("shuffling", ledger.shuffle() ? "on" : "off",
                   options_.shuffle ? "on" : "off");
  }
  if (ledger.shuffle() && ledger.seed() != options_.seed) {
    return Differs("the shuffling seed", absl::StrCat(ledger.seed()),
                   absl::StrCat(options_.seed));
  }
  return absl::OkStatus();
}

absl::StatusOr<TaskManager::LoadedLedger> TaskManager::Parse(
    const v1::Ledger& ledger) const {
  ELASTICDL_RETURN_IF_ERROR(CheckSameData(ledger));
  const BlockIndex& blocks = training_.blocks();
  if (ledger.step() < 0 || ledger.epoch() < 0 || ledger.next_block() < 0 ||
      ledger.next_block() > blocks.num_blocks()) {
    return absl::DataLossError(absl::StrCat(
        "the ledger has step ", ledger.step(), ", epoch ", ledger.epoch(),
        ", block ", ledger.next_block(), " of ", blocks.num_blocks()));
  }
  LoadedLedger loaded;
  ELASTICDL_ASSIGN_OR_RETURN(loaded.outstanding,
                             ParseRanges(blocks, ledger.outstanding()));
  ELASTICDL_ASSIGN_OR_RETURN(loaded.quarantined,
                             ParseRanges(blocks, ledger.quarantined()));
  ELASTICDL_RETURN_IF_ERROR(
      CheckDisjoint(blocks, loaded.outstanding, loaded.quarantined));
  const PassedBlocks passed(training_, ledger.epoch(), ledger.next_block());
  int64_t committed = passed.num_records();
  for (const Range& range : loaded.outstanding) {
    if (!passed.Contains(range)) {
      return absl::DataLossError(absl::StrCat(
          "the ledger has an outstanding range ", range.begin, "-", range.end,
          " of shard '", blocks.at(range.block).shard->name(), "', epoch ",
          range.epoch, ", that was never granted"));
    }
    committed -= range.size();
  }
  // After a cut back, ranges may be set aside before the cursor reaches them.
  for (const Range& range : loaded.quarantined) {
    if (passed.Contains(range)) committed -= range.size();
  }
  if (committed != ledger.committed_records()) {
    return absl::DataLossError(
        absl::StrCat("the ledger says that ", ledger.committed_records(),
                     " records are committed; its ranges say ", committed));
  }
  return loaded;
}

void TaskManager::Load(const v1::Ledger& ledger, const LoadedLedger& loaded) {
  const size_t known = training_.set_aside().size();
  for (const Range& range : loaded.quarantined) training_.SetAside(range);
  for (size_t i = known; i < training_.set_aside().size(); ++i) {
    QuarantinedRange bad;
    bad.type = v1::TRAINING;
    bad.range = training_.blocks().ToProto(training_.set_aside()[i]);
    bad.last_error = "quarantined by an earlier run";
    quarantined_.push_back(std::move(bad));
  }
  training_.Load(ledger.epoch(), ledger.next_block(), loaded.outstanding);
  step_ = ledger.step();
  committed_records_ = ledger.committed_records();
  stop_reason_.clear();
  StopAtMaxStep();
}

absl::Status TaskManager::Restore(const v1::Ledger& ledger) {
  if (next_task_id_ != 1) {
    return absl::FailedPreconditionError(
        "a ledger is restored before the first task is granted");
  }
  ELASTICDL_ASSIGN_OR_RETURN(LoadedLedger loaded, Parse(ledger));
  Load(ledger, loaded);
  return absl::OkStatus();
}

absl::Status TaskManager::CutBack(absl::Time now, const v1::Ledger& ledger) {
  if (train_end_ == TrainEnd::kDone) {
    return absl::FailedPreconditionError(
        "training has ended, it cannot be cut back");
  }
  if (ledger.step() > step_) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot cut back from step ", step_, " to the later step ",
                     ledger.step()));
  }
  ELASTICDL_ASSIGN_OR_RETURN(LoadedLedger loaded, Parse(ledger));
  if (EvaluationRunning() && evaluation_.version() > ledger.step()) {
    CancelEvaluation(now);
  }
  evaluation_.FallBack(ledger.step());
  std::vector<int64_t> stale;
  for (const auto& [task_id, held] : held_) {
    if (held.type == v1::TRAINING || held.type == v1::TRAIN_END_CALLBACK) {
      stale.push_back(task_id);
    }
  }
  for (const int64_t task_id : stale) Drop(now, task_id);
  for (auto& [worker_id, worker] : workers_) worker.finished.clear();
  if (train_end_ == TrainEnd::kHeld) train_end_ = TrainEnd::kDue;
  Load(ledger, loaded);
  v1::TaskEvent event;
  *event.mutable_cut_back() = ledger;
  Record(event);
  return absl::OkStatus();
}

TaskProgress TaskManager::progress() const {
  const BlockIndex& blocks = training_.blocks();
  TaskProgress progress;
  progress.step = step_;
  progress.epoch = training_.epoch();
  progress.num_epochs = options_.num_epochs;
  progress.records_per_epoch = blocks.num_records();
  progress.committed_records = committed_records_;
  progress.total_records =
      options_.num_epochs > 0 ? options_.num_epochs * blocks.num_records() : -1;
  progress.blocks_handed_out = training_.next_block();
  progress.blocks_per_epoch = blocks.num_blocks();
  progress.predicted_records = predicted_records_;
  progress.tasks_held = static_cast<int64_t>(held_.size());
  return progress;
}

LedgerCounts TaskManager::ledger_counts() const {
  LedgerCounts counts;
  for (const auto& [id, held] : held_) {
    if (held.type == v1::TRAINING) counts.in_flight += held.range.size();
  }
  for (const Range& range : training_.returned()) {
    counts.returned += range.size();
  }
  for (const QuarantinedRange& bad : quarantined_) {
    counts.set_aside += bad.range.end() - bad.range.begin();
  }
  return counts;
}

TaskSummary TaskManager::Summary() const {
  TaskSummary summary;
  summary.finished = Finished();
  summary.success = summary.finished && quarantined_.empty();
  summary.committed_records = committed_records_;
  summary.predicted_records = predicted_records_;
  summary.quarantined = quarantined_;
  for (const QuarantinedRange& bad : quarantined_) {
    summary.quarantined_records += bad.range.end() - bad.range.begin();
  }
  summary.stop_reason = stop_reason_;
  if (!stop_reason_.empty()) {
    const int64_t total = progress().total_records;
    summary.discarded_records =
        total < 0 ? -1
                  : std::max<int64_t>(0, total - committed_records_ -
                                             training_.num_set_aside());
  }
  return summary;
}

}  // namespace elasticdl::master
