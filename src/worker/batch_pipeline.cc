#include "batch_pipeline.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "elasticdl/ledger.h"

namespace elasticdl::worker {

absl::StatusOr<Batch> Minibatch::Take() {
  MutexLock lock(mu_);
  while (!batch_.has_value()) ready_.Wait(mu_);
  absl::StatusOr<Batch> batch = *std::move(batch_);
  batch_ = absl::FailedPreconditionError("minibatch was taken before");
  return batch;
}

void Minibatch::Set(absl::StatusOr<Batch> batch) {
  {
    MutexLock lock(mu_);
    batch_ = std::move(batch);
  }
  ready_.NotifyAll();
}

BatchPipeline::BatchPipeline(Options options, model::Model& model,
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
  // A consumer that still waits for one of these must not wait for ever.
  while (auto left = to_feed_.Pop()) {
    (*left)->Set(absl::CancelledError("the pipeline was stopped"));
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
    ReadTask(*std::move(task));
  }
}

void BatchPipeline::ReadTask(std::shared_ptr<const v1::Task> task) {
  const v1::LedgerRange& range = task->range();
  // A shuffled block is read whole, because any of its records may be next; in
  // file order, the range alone.
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
  auto shared = std::make_shared<data::RecordBatch>(std::move(block));
  const std::vector<int64_t> numbers =
      ledger::RecordsOf(task->shuffle_seed(), range.block_begin(),
                        range.block_end(), range.begin(), range.end());
  for (int64_t begin = range.begin(); begin < range.end();
       begin += options_.minibatch_size) {
    const int64_t end = std::min(range.end(), begin + options_.minibatch_size);
    if (!WaitForRoom()) return;
    auto minibatch = std::make_shared<Minibatch>(task, begin, end);
    if (status.ok()) {
      minibatch->raw_.Hold(shared);
      for (int64_t p = begin; p < end; ++p) {
        const int64_t number = numbers[static_cast<size_t>(p - range.begin())];
        minibatch->numbers_.push_back(number);
        minibatch->records_.push_back(
            shared->records()[static_cast<size_t>(number - from)]);
      }
      sink_(minibatch);
      to_feed_.Push(std::move(minibatch));
    } else {
      minibatch->Set(status);
      sink_(std::move(minibatch));
      return;
    }
  }
}

void BatchPipeline::FeedMinibatches() {
  while (auto next = to_feed_.Pop()) {
    Minibatch& minibatch = **next;
    absl::StatusOr<Batch> batch =
        model_.Feed(minibatch.records_, options_.mode, reader_.metadata());
    if (!batch.ok()) {
      std::string where =
          absl::StrCat("records of ", minibatch.task().range().shard());
      if (auto bad = model::BadRecord(batch.status())) {
        where = absl::StrCat("record ",
                             minibatch.numbers_[static_cast<size_t>(*bad)],
                             " of ", minibatch.task().range().shard());
      }
      batch = Annotate(batch.status(), where);
    }
    // Decoded: the raw records are not needed any more.
    minibatch.records_.clear();
    minibatch.raw_ = data::RecordBatch();
    minibatch.Set(std::move(batch));
  }
}

}  // namespace elasticdl::worker
