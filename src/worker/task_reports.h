// Reports of evaluation, prediction and train-end tasks.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "elasticdl/model/loader.h"
#include "elasticdl/v1/master.pb.h"
#include "event.h"

namespace elasticdl::worker {

// Runs on the training thread.
class TaskReports {
 public:
  explicit TaskReports(SendFunction send) : send_(std::move(send)) {}

  // The task is done. `output_bytes`: the length of the file of predictions.
  void Done(const v1::Task& task, int64_t records,
            const std::vector<model::MetricSums>& metrics = {},
            int64_t output_bytes = 0);
  // The same of a train-end task. `rows`: those of the exported model that are
  // in files of their own.
  void TrainEnd(const v1::Task& task, const v1::ExportedRows& rows);
  // To a new master, which may not know the last ones. Evaluations are not
  // repeated: that master begins them anew.
  void Repeat() const;

 private:
  void Send(const v1::Task& task, v1::WorkerMessage message);

  const SendFunction send_;
  std::deque<v1::WorkerMessage> sent_;
};

}  // namespace elasticdl::worker
