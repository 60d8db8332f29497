#include "batch_pipeline.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "batch_mover.h"
#include "device.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "elasticdl/ledger.h"

namespace elasticdl::worker {

BatchPipeline::BatchPipeline(PipelineOptions options, model::Model& model,
                             data::DataReader& reader, Sink sink)
    : options_(options),
      model_(model),
      reader_(reader),
      sink_(std::move(sink)),
      tasks_(std::numeric_limits<size_t>::max()),
      to_feed_(std::numeric_limits<size_t>::max()) {
  threads_.emplace_back("reader", [this] { ReadTasks(); });
  for (int i = 0; i < options_.num_feeders; ++i) {
    threads_.emplace_back("feeder", [this] { FeedMinibatches(); });
  }
}

BatchPipeline::~BatchPipeline() {
  Stop();
  for (Thread& thread : threads_) thread.Join();
  // The consumer may be waiting in Minibatch::Take for one of these.
  while (auto left = to_feed_.Pop()) {
    left->minibatch->Set(absl::CancelledError("the pipeline was stopped"));
  }
}

void BatchPipeline::Add(v1::Task task) {
  tasks_.Push(std::make_shared<const v1::Task>(std::move(task)));
}

void BatchPipeline::Release() {
  {
    MutexLock lock(mu_);
    --in_flight_;
  }
  room_.NotifyOne();
}

void BatchPipeline::Stop() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  room_.NotifyAll();
  tasks_.Close();
  to_feed_.Close();
}

bool BatchPipeline::WaitForRoom() {
  MutexLock lock(mu_);
  while (in_flight_ >= options_.depth && !stopped_) room_.Wait(mu_);
  if (stopped_) return false;
  ++in_flight_;
  return true;
}

void BatchPipeline::ReadTasks() {
  while (auto task = tasks_.Pop()) {
    if (tasks_.closed()) return;
    ReadTask(*task);
  }
}

void BatchPipeline::ReadTask(const std::shared_ptr<const v1::Task>& task) {
  const v1::LedgerRange& range = task->range();
  // The records of a range are spread over the whole block when it is shuffled,
  // so the block is read. Otherwise the range is enough.
  const bool shuffled = task->shuffle_seed() != 0;
  const int64_t from = shuffled ? range.block_begin() : range.begin();
  const int64_t to = shuffled ? range.block_end() : range.end();
  absl::Status status = Failpoint("worker.read");
  data::RecordBatch block;
  if (status.ok()) {
    auto read = reader_.Read(range.shard(), from, to);
    status = read.status();
    if (read.ok()) block = *std::move(read);
  }
  if (status.ok() && block.records().size() != static_cast<size_t>(to - from)) {
    status = absl::DataLossError(
        absl::StrCat("records ", from, " to ", to, " of ", range.shard(),
                     ": only ", block.records().size(), " there"));
  }
  // The minibatches share the block's memory.
  const auto shared =
      std::make_shared<const data::RecordBatch>(std::move(block));
  const std::vector<int64_t> numbers =
      ledger::RecordsOf(task->shuffle_seed(), range.block_begin(),
                        range.block_end(), range.begin(), range.end());
  for (int64_t begin = range.begin(); begin < range.end();
       begin += options_.minibatch_size) {
    const int64_t end = std::min(range.end(), begin + options_.minibatch_size);
    if (!WaitForRoom()) return;
    const auto first = numbers.begin() + (begin - range.begin());
    Raw raw;
    raw.minibatch = std::make_shared<Minibatch>(
        task, begin, end, std::vector<int64_t>(first, first + (end - begin)));
    if (!status.ok()) {
      raw.minibatch->Set(status);
      sink_(std::move(raw.minibatch));
      return;
    }
    raw.block = shared;
    for (const int64_t number : raw.minibatch->record_numbers()) {
      raw.records.push_back(
          shared->records()[static_cast<size_t>(number - from)]);
    }
    // The consumer may wait for it at once, so somebody must set it.
    const std::shared_ptr<Minibatch> minibatch = raw.minibatch;
    sink_(minibatch);
    if (!to_feed_.Push(std::move(raw))) {
      minibatch->Set(absl::CancelledError("the pipeline was stopped"));
      return;
    }
  }
}

void BatchPipeline::FeedMinibatches() {
  absl::Status usable = UseDevice(options_.device);
  while (std::optional<Raw> next = to_feed_.Pop()) {
    Minibatch& minibatch = *next->minibatch;
    absl::StatusOr<Batch> batch = [&] {
      const trace::ScopedSpan timed(options_.recorder, trace::Kind::kFeed, 0);
      return model_.Feed(next->records, options_.mode, reader_.metadata());
    }();
    if (!batch.ok()) {
      std::string where =
          absl::StrCat("records of ", minibatch.task().range().shard());
      if (auto bad = model::BadRecord(batch.status())) {
        where = absl::StrCat(
            "record ", minibatch.record_numbers()[static_cast<size_t>(*bad)],
            " of ", minibatch.task().range().shard());
      }
      batch = Annotate(batch.status(), where);
    } else if (!options_.device.is_cpu() || options_.channels_last) {
      const absl::Status laid_out = OnDevice("laying out a minibatch", [&] {
        if (options_.channels_last) *batch = ChannelsLast(*batch);
        if (usable.ok()) *batch = Pinned(*batch, options_.device);
        return usable;
      });
      if (!laid_out.ok()) batch = laid_out;
    }
    minibatch.Set(std::move(batch));
  }
}

}  // namespace elasticdl::worker
