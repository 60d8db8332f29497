#include "task_reports.h"

namespace elasticdl::worker {
namespace {

// More than a worker holds at a time, so more than can be under way.
constexpr size_t kReportsRemembered = 8;

}  // namespace

void TaskReports::Done(const v1::Task& task, int64_t records,
                       const std::vector<model::MetricSums>& metrics,
                       int64_t output_bytes) {
  v1::WorkerMessage message;
  v1::TaskDone& done = *message.mutable_task_done();
  done.set_task_id(task.task_id());
  done.set_records(records);
  done.set_output_bytes(output_bytes);
  for (const model::MetricSums& metric : metrics) {
    v1::MetricSums& sums = *done.add_metrics();
    sums.set_name(metric.name);
    sums.set_kind(metric.kind);
    sums.mutable_sums()->Add(metric.sums.begin(), metric.sums.end());
  }
  Send(task, std::move(message));
}

void TaskReports::TrainEnd(const v1::Task& task, const v1::ExportedRows& rows) {
  v1::WorkerMessage message;
  message.mutable_task_done()->set_task_id(task.task_id());
  if (rows.tables() > 0) {
    *message.mutable_task_done()->mutable_exported_rows() = rows;
  }
  Send(task, std::move(message));
}

void TaskReports::Send(const v1::Task& task, v1::WorkerMessage message) {
  if (task.type() != v1::EVALUATION) {
    sent_.push_back(message);
    if (sent_.size() > kReportsRemembered) sent_.pop_front();
  }
  send_(std::move(message));
}

void TaskReports::Repeat() const {
  for (const v1::WorkerMessage& message : sent_) send_(message);
}

}  // namespace elasticdl::worker
