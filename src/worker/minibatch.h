// One minibatch on its way from the reader to the training step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/model/types.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::worker {

// Exists from the moment its records are known; its tensors arrive when a
// feeder is done. Thread-safe.
class Minibatch {
 public:
  // Positions [begin, end) of the task's block; `numbers` are the records there
  // in the shard, in the order of the batch. The task is shared by its
  // minibatches.
  Minibatch(std::shared_ptr<const v1::Task> task, int64_t begin, int64_t end,
            std::vector<int64_t> numbers)
      : task_(std::move(task)),
        begin_(begin),
        end_(end),
        numbers_(std::move(numbers)) {}

  const v1::Task& task() const { return *task_; }
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  int64_t records() const { return end_ - begin_; }
  bool last_of_task() const { return end_ == task_->range().end(); }
  const std::vector<int64_t>& record_numbers() const { return numbers_; }

  // Waits for the tensors and hands them out, once. An error names the shard
  // and the record that cannot be read or decoded.
  absl::StatusOr<Batch> Take();
  // The same without waiting: UNAVAILABLE when they are not there yet. After an
  // error Take gives the error, too.
  absl::StatusOr<Batch> TakeIfReady();
  void Set(absl::StatusOr<Batch> batch);

 private:
  const std::shared_ptr<const v1::Task> task_;
  const int64_t begin_;
  const int64_t end_;
  const std::vector<int64_t> numbers_;

  Mutex mu_;
  CondVar ready_;
  std::optional<absl::StatusOr<Batch>> batch_ ABSL_GUARDED_BY(mu_);
};

// Tasks in, minibatches out, in order. Thread-safe.
class MinibatchSource {
 public:
  // Gets every minibatch, in order. Must not block.
  using Sink = std::function<void(std::shared_ptr<Minibatch>)>;

  virtual ~MinibatchSource() = default;
  // Queues a task. Never blocks.
  virtual void Add(v1::Task task) = 0;
  // The consumer is done with one minibatch: another may be read.
  virtual void Release() = 0;
  // No more minibatches. Idempotent, does not block.
  virtual void Stop() = 0;
};

}  // namespace elasticdl::worker
