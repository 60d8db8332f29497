// Runs evaluation tasks: computes the sums of the model's metrics.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/elastic/watchdog.h"
#include "elasticdl/model/loader.h"
#include "minibatch.h"
#include "replica.h"
#include "task_reports.h"

namespace elasticdl::worker {

// Runs on the training thread, except AddTask.
class Evaluator {
 public:
  struct Deps {
    Replica& replica;
    TaskReports& reports;
    // If any.
    elastic::Watchdog* watchdog = nullptr;
  };
  // What `deps` refers to must outlive the evaluator.
  Evaluator(const Deps& deps, model::MetricSet metrics,
            std::unique_ptr<MinibatchSource> source);

  // Any thread.
  void AddTask(v1::Task task) { source_->Add(std::move(task)); }
  // The next minibatch of its tasks. An error fails the job.
  absl::Status Evaluate(Minibatch& minibatch);
  void Stop() { source_->Stop(); }

 private:
  const Deps deps_;
  model::MetricSet metrics_;
  // Of the task at hand.
  int64_t records_ = 0;
  const std::unique_ptr<MinibatchSource> source_;
};

}  // namespace elasticdl::worker
