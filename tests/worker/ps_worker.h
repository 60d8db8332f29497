// A worker that trains with the servers of served.h; the test is its master and
// its loop.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data_sources.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/status.h"
#include "kept_saver.h"
#include "ps_trainer.h"
#include "served.h"
#include "task_reports.h"

namespace elasticdl::worker::test {

using Said = v1::WorkerMessage::MessageCase;

class TaskSource : public MinibatchSource {
 public:
  TaskSource(int64_t minibatch_size, Sink sink)
      : minibatch_size_(minibatch_size), sink_(std::move(sink)) {}
  void Add(v1::Task task) override {
    for (auto& made : CountedData().Minibatches(task, minibatch_size_)) {
      sink_(std::move(made));
    }
  }
  void Release() override {}
  void Stop() override {}

 private:
  const int64_t minibatch_size_;
  const Sink sink_;
};

class PsEnvironment : public TestEnvironment {
 public:
  std::unique_ptr<MinibatchSource> MakePipeline(
      const PipelineOptions& options, model::Model&, data::DataReader&,
      MinibatchSource::Sink sink) override {
    return std::make_unique<TaskSource>(options.minibatch_size,
                                        std::move(sink));
  }
  std::unique_ptr<checkpoint::Saver> MakeSaver(
      const std::string&, const checkpoint::SaveOptions&) override {
    return std::make_unique<KeptSaver>(saves);
  }
  absl::StatusOr<checkpoint::Loaded> LoadCheckpoint(
      const std::string& path,
      const checkpoint::LoadOptions& options) override {
    return checkpoint::Load(path, options);
  }

  std::vector<KeptSaver::Save> saves;
};

inline v1::JobSpec MakeJob(bool async, bool overlap = false) {
  v1::JobSpec job;
  job.set_minibatch_size(4);
  job.set_seed(1);
  job.set_num_ps_pods(2);
  job.set_use_async(async);
  job.set_ps_no_overlap(!overlap);
  job.set_get_model_steps(1);
  return job;
}

struct PsWorkerOptions {
  int64_t id = 0;
  std::string restore_from;
  bool await_model = false;
};

class PsWorker {
 public:
  PsWorker(PsServers& servers, ServedModel& model, v1::JobSpec job,
           const PsWorkerOptions& options = {})
      : job(std::move(job)), servers_(servers) {
    replica = MakeServedReplica(model);
    data_ =
        std::make_unique<DataSources>(this->job, model, environment, events_);
    auto made = PsTrainer::Create({this->job, options.id, kServersSecret,
                                   servers.Addresses().servers(),
                                   options.restore_from, options.await_model,
                                   model, *replica, *data_, reports_, events_,
                                   [this](v1::WorkerMessage message) {
                                     sent.push_back(std::move(message));
                                   },
                                   environment});
    EXPECT_TRUE(made.ok()) << made.status();
    trainer = *std::move(made);
  }
  // Must go before what it uses.
  ~PsWorker() { trainer.reset(); }

  // As the thread of the stream does.
  void Tell(const v1::MasterMessage& message) {
    if (trainer->Hear(message)) return;
    Event event;
    event.message = message;
    events_.Push(std::move(event));
  }
  void TellAddresses() { Tell(servers_.Addresses()); }
  // Records of the first shard.
  void Give(int64_t begin, int64_t end) {
    v1::MasterMessage message;
    v1::Task& task = *message.mutable_task();
    task.set_task_id(++tasks_);
    task.set_type(v1::TRAINING);
    v1::LedgerRange& range = *task.mutable_range();
    range.set_shard(CountedData::ShardName(0));
    range.set_begin(begin);
    range.set_end(end);
    range.set_block_begin(begin);
    range.set_block_end(end);
    Tell(message);
  }
  void Happen(Event::Kind kind) { events_.PushKind(kind); }
  // The answer to what is staged.
  void Answer(int64_t begin, int64_t version) {
    v1::MasterMessage message;
    message.mutable_push_result()->mutable_range()->set_shard(
        CountedData::ShardName(0));
    message.mutable_push_result()->mutable_range()->set_begin(begin);
    message.mutable_push_result()->set_version(version);
    Tell(message);
  }
  // What the worker's loop does until it has to wait.
  absl::Status Run() {
    while (true) {
      while (auto event = events_.Pop(absl::ZeroDuration())) {
        ELASTICDL_RETURN_IF_ERROR(trainer->Handle(*event));
      }
      if (!trainer->HasWork()) break;
      ELASTICDL_RETURN_IF_ERROR(trainer->Work());
    }
    trainer->BeforeWaiting();
    return absl::OkStatus();
  }
  int Count(Said kind) const {
    int count = 0;
    for (const auto& message : sent) count += message.message_case() == kind;
    return count;
  }
  const v1::WorkerMessage& Last(Said kind) const {
    for (auto it = sent.rbegin(); it != sent.rend(); ++it) {
      if (it->message_case() == kind) return *it;
    }
    ADD_FAILURE() << "it was never said";
    return v1::WorkerMessage::default_instance();
  }
  // That were reported.
  int64_t records() const {
    return Count(Said::kProgress) == 0
               ? 0
               : Last(Said::kProgress).progress().totals(0).records();
  }
  const v1::Staged& staged() const { return Last(Said::kStaged).staged(); }

  const v1::JobSpec job;
  PsEnvironment environment;
  std::vector<v1::WorkerMessage> sent;
  std::unique_ptr<Replica> replica;
  std::unique_ptr<PsTrainer> trainer;

 private:
  PsServers& servers_;
  ThreadEventQueue events_;
  TaskReports reports_{[this](v1::WorkerMessage message) {
    sent.push_back(std::move(message));
  }};
  std::unique_ptr<DataSources> data_;
  int64_t tasks_ = 0;
};

}  // namespace elasticdl::worker::test
