// Reads and decodes ahead of the training step: tasks in, minibatches out, in
// order. A reader thread cuts tasks into minibatches, feeder threads run the
// model's feed function on them, so the step finds its tensors ready.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/data/reader.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::worker {

// One minibatch, from the moment its records are known; its tensors arrive
// when a feeder is done. Thread-safe.
class Minibatch {
 public:
  Minibatch(std::shared_ptr<const v1::Task> task, int64_t begin, int64_t end)
      : task_(std::move(task)), begin_(begin), end_(end) {}

  const v1::Task& task() const { return *task_; }
  // Positions of the task's block.
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  int64_t records() const { return end_ - begin_; }
  bool last_of_task() const { return end_ == task_->range().end(); }

  // Record numbers in the shard, in the order of the batch.
  const std::vector<int64_t>& record_numbers() const { return numbers_; }

  // Waits for the tensors and hands them out, once. An error names the shard
  // and the record that cannot be read or decoded.
  absl::StatusOr<Batch> Take();

 private:
  friend class BatchPipeline;
  void Set(absl::StatusOr<Batch> batch);

  // Constant once it left the pipeline's reader thread; task_ is shared by the
  // minibatches of one task.
  const std::shared_ptr<const v1::Task> task_;
  const int64_t begin_;
  const int64_t end_;
  data::RecordBatch raw_;
  std::vector<absl::string_view> records_;
  std::vector<int64_t> numbers_;

  Mutex mu_;
  CondVar ready_;
  std::optional<absl::StatusOr<Batch>> batch_ ABSL_GUARDED_BY(mu_);
};

// Thread-safe. Stop() makes every thread end; the destructor joins them.
class BatchPipeline {
 public:
  struct Options {
    Mode mode = Mode::kTraining;
    int64_t minibatch_size = 64;
    // Minibatches read ahead; each holds one batch of tensors.
    int depth = 8;
    int num_feeders = 1;
  };
  // Called on the reader thread with every minibatch, in order. Shared with
  // the feeder that fills it.
  using Sink = std::function<void(std::shared_ptr<Minibatch>)>;

  // `model` and `reader` must outlive the pipeline.
  BatchPipeline(Options options, model::Model& model, data::DataReader& reader,
                Sink sink);
  ~BatchPipeline();

  // Queues a task. Never blocks.
  void Add(v1::Task task);

  // The consumer is done with one minibatch: another may be read.
  void Release();

  void Stop();

 private:
  void ReadTasks();
  void ReadTask(std::shared_ptr<const v1::Task> task);
  void FeedMinibatches();
  bool WaitForRoom();

  const Options options_;
  model::Model& model_;
  data::DataReader& reader_;
  const Sink sink_;
  Queue<std::shared_ptr<const v1::Task>> tasks_;
  Queue<std::shared_ptr<Minibatch>> to_feed_;

  Mutex mu_;
  CondVar room_;
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::vector<Thread> threads_;
};

}  // namespace elasticdl::worker
