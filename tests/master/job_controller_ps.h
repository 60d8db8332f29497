// A controller of a job with parameter servers, without sockets.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "job_controller.h"

namespace elasticdl::master {

class PsRecorder : public WorkerPort, public JobObserver {
 public:
  void Send(const std::vector<ConnectionId>& connections,
            v1::MasterMessage message) override {
    for (const ConnectionId connection : connections) {
      sent[connection].push_back(message);
    }
  }
  void SendToServer(int server, v1::MasterMessage message) override {
    to_servers[server].push_back(std::move(message));
  }
  void Close(ConnectionId, const absl::Status&) override {}
  void KillWorker(int64_t worker_id, const std::string&) override {
    killed.push_back(worker_id);
  }
  void OnWorkerReady(int64_t, int64_t, int64_t) override {}
  void OnWorkerLost(int64_t, const std::string&) override {}
  void OnCommit(const CommittedRange& range, int64_t step, int64_t) override {
    committed.emplace_back(range.begin, range.end);
    steps.push_back(step);
  }
  void OnCutBack(int64_t) override { FAIL() << "nothing is ever cut back"; }
  void OnProgress(const v1::Progress&, int64_t) override {}
  void OnWorld(const WorldChange&) override { FAIL() << "there are no worlds"; }
  void OnFirstStep(int64_t, int64_t) override {}
  void OnCheckpoint(const v1::CheckpointDone&) override {}
  void OnEvaluation(const EvaluationResult& result) override {
    evaluated.push_back(result.version);
  }
  void OnTaskDone(int64_t) override {}
  void OnExportedRows(const v1::ExportedRows& rows) override {
    exported.push_back(rows);
  }
  void OnQuarantined(const QuarantinedRange&) override {}
  void OnServersScaled(int servers) override { scaled.push_back(servers); }
  void OnPart(const PartChange&) override {}
  void OnMessage(const std::string& message) override {
    messages.push_back(message);
  }

  std::vector<v1::MasterMessage> Take(ConnectionId connection,
                                      v1::MasterMessage::MessageCase kind) {
    std::vector<v1::MasterMessage> taken;
    std::vector<v1::MasterMessage> left;
    for (v1::MasterMessage& message : sent[connection]) {
      (message.message_case() == kind ? taken : left)
          .push_back(std::move(message));
    }
    sent[connection] = std::move(left);
    return taken;
  }

  std::map<ConnectionId, std::vector<v1::MasterMessage>> sent;
  std::map<int, std::vector<v1::MasterMessage>> to_servers;
  std::vector<std::pair<int64_t, int64_t>> committed;
  std::vector<int64_t> steps;
  std::vector<int64_t> evaluated;
  std::vector<int64_t> killed;
  std::vector<int> scaled;
  std::vector<v1::ExportedRows> exported;
  std::vector<std::string> messages;
};

class JobControllerPsTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.job.set_job_type(v1::TRAINING_ONLY);
    options_.job.set_minibatch_size(10);
    options_.job.set_num_ps_pods(2);
    options_.job.set_grads_to_wait(2);
    v1::LedgerShard shard;
    shard.set_name("train");
    shard.set_end(80);
    options_.tasks.training_shards = {shard};
    options_.tasks.minibatch_size = 10;
    options_.tasks.num_minibatches_per_task = 2;
    options_.has_pods = false;
  }
  void Start() {
    auto controller = JobController::Create(options_, output_, output_, now_);
    ASSERT_TRUE(controller.ok()) << controller.status();
    controller_ = *std::move(controller);
  }
  void Say(ConnectionId connection, const v1::WorkerMessage& message) {
    now_ += absl::Milliseconds(1);
    controller_->OnMessage(now_, connection, message);
  }
  void Attach(ConnectionId connection, int64_t id) {
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(id);
    Say(connection, hello);
    v1::WorkerMessage ready;
    ready.mutable_ready();
    Say(connection, ready);
  }
  void Close(ConnectionId connection) {
    now_ += absl::Milliseconds(1);
    controller_->OnClosed(now_, connection, absl::UnavailableError("killed"));
  }
  std::vector<v1::Task> Tasks(ConnectionId connection,
                              v1::TaskType type = v1::TRAINING) {
    for (const auto& message :
         output_.Take(connection, v1::MasterMessage::kTask)) {
      tasks_[connection].push_back(message.task());
    }
    std::vector<v1::Task> wanted;
    for (const v1::Task& task : tasks_[connection]) {
      if (task.type() == type) wanted.push_back(task);
    }
    return wanted;
  }
  void Pushed(ConnectionId connection, int64_t id, int64_t total) {
    v1::WorkerMessage message;
    v1::RecordTotal& records = *message.mutable_progress()->add_totals();
    records.set_worker_id(id);
    records.set_records(total);
    Say(connection, message);
  }
  void Stage(ConnectionId connection, const v1::Task& task, int64_t begin,
             int64_t base) {
    v1::WorkerMessage message;
    v1::Staged& staged = *message.mutable_staged();
    staged.set_task_id(task.task_id());
    *staged.mutable_range() = task.range();
    staged.mutable_range()->set_begin(begin);
    staged.mutable_range()->set_end(begin + 10);
    staged.set_base_version(base);
    staged.set_map_version(map_version_);
    Say(connection, message);
  }
  void Applied(int server, int64_t version) {
    v1::WorkerMessage message;
    message.mutable_server_committed()->set_version(version);
    controller_->OnServerMessage(now_, server, message);
  }
  std::vector<int64_t> Results(ConnectionId connection) {
    std::vector<int64_t> versions;
    for (const auto& message :
         output_.Take(connection, v1::MasterMessage::kPushResult)) {
      versions.push_back(message.push_result().version());
    }
    return versions;
  }

  absl::Time now_ = absl::UnixEpoch();
  // What workers cut their gradients for.
  int64_t map_version_ = 1;
  JobController::Options options_;
  PsRecorder output_;
  std::map<ConnectionId, std::vector<v1::Task>> tasks_;
  std::unique_ptr<JobController> controller_;
};

}  // namespace elasticdl::master
