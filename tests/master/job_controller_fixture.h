// A controller of a job without parameter servers, without sockets.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "controller_handle.h"
#include "job_controller.h"

namespace elasticdl::master {

// Remembers what the controller wants.
class Recorder : public WorkerPort, public JobObserver {
 public:
  void Send(const std::vector<ConnectionId>& connections,
            v1::MasterMessage message) override {
    for (const ConnectionId connection : connections) {
      sent[connection].push_back(message);
    }
  }
  void SendToServer(int, v1::MasterMessage) override {}
  void Close(ConnectionId connection, const absl::Status& status) override {
    closed[connection] = status;
  }
  void KillWorker(int64_t worker_id, const std::string& reason) override {
    killed.push_back(worker_id);
  }
  void OnWorkerReady(int64_t, int64_t, int64_t) override {}
  void OnWorkerLost(int64_t worker_id, const std::string& reason) override {
    lost.push_back(absl::StrCat(worker_id, ": ", reason));
  }
  void OnCommit(const CommittedRange& range, int64_t step,
                int64_t generation) override {
    committed.emplace_back(step, range.end - range.begin);
  }
  void OnCutBack(int64_t step) override { cut_backs.push_back(step); }
  void OnKeptGivenUp(int64_t step, const std::string&) override {
    given_up.push_back(step);
  }
  void OnProgress(const v1::Progress&, int64_t) override {}
  void OnWorld(const WorldChange& world) override { worlds.push_back(world); }
  void OnFirstStep(int64_t, int64_t) override {}
  void OnCheckpoint(const v1::CheckpointDone&) override {}
  void OnEvaluation(const EvaluationResult& result) override {
    evaluations.push_back(result);
  }
  void OnEvaluating(int64_t step,
                    const std::vector<int64_t>& workers) override {
    evaluating.emplace_back(step, workers);
  }
  void OnSaving(const std::vector<int64_t>& workers) override {
    saving.push_back(workers);
  }
  void OnTaskDone(int64_t records) override { done_records += records; }
  void OnQuarantined(const QuarantinedRange&) override { ++quarantined; }
  void OnServersScaled(int) override { FAIL() << "there are no servers"; }
  void OnPart(const PartChange&) override {}
  void OnMessage(const std::string& text) override { messages.push_back(text); }

  // Takes the messages of one kind out of a connection's box.
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
  std::map<ConnectionId, absl::Status> closed;
  std::vector<int64_t> killed;
  std::vector<std::string> lost;
  std::vector<std::pair<int64_t, int64_t>> committed;
  std::vector<int64_t> cut_backs;
  std::vector<int64_t> given_up;
  std::vector<WorldChange> worlds;
  std::vector<EvaluationResult> evaluations;
  std::vector<std::pair<int64_t, std::vector<int64_t>>> evaluating;
  std::vector<std::vector<int64_t>> saving;
  int64_t done_records = 0;
  int quarantined = 0;
  std::vector<std::string> messages;
};

v1::LedgerShard MakeShard(const std::string& name, int64_t records) {
  v1::LedgerShard shard;
  shard.set_name(name);
  shard.set_end(records);
  return shard;
}

class JobControllerTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.job.set_job_type(v1::TRAINING_ONLY);
    options_.job.set_minibatch_size(10);
    options_.tasks.training_shards = {MakeShard("train", 100)};
    options_.tasks.minibatch_size = 10;
    options_.tasks.num_minibatches_per_task = 2;
    options_.tasks.train_end_task = true;
    options_.run = "run";
    options_.search_checkpoint = controller_.search();
    controller_.store.list =
        [this]() -> absl::StatusOr<std::vector<checkpoint::Version>> {
      std::vector<checkpoint::Version> versions;
      for (const auto& [step, saved] : on_disk_) {
        versions.push_back(
            {step, absl::StrCat("version-", step), {saved.run, saved.lineage}});
      }
      return versions;
    };
    controller_.store.load_ledger =
        [this](const std::string& path) -> absl::StatusOr<v1::Ledger> {
      for (const auto& [step, saved] : on_disk_) {
        if (path == absl::StrCat("version-", step)) return saved.ledger;
      }
      return absl::NotFoundError(path);
    };
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
  // Hello and Ready, and the world that follows; what it starts from.
  struct Attached {
    int64_t worker_id = -1;
    std::string restore_from;
  };
  Attached Attach(ConnectionId connection, int64_t worker_id,
                  int64_t step = 0) {
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(worker_id);
    Say(connection, hello);
    const auto welcomes = output_.Take(connection, v1::MasterMessage::kWelcome);
    if (welcomes.empty()) return {};
    v1::WorkerMessage ready;
    ready.mutable_ready()->set_step(step);
    Attached attached{welcomes[0].welcome().worker_id(),
                      welcomes[0].welcome().restore_from()};
    id_of_[connection] = attached.worker_id;
    Say(connection, ready);
    Form();
    if (prepared_.count(connection) != 0) {
      attached.restore_from = prepared_[connection].restore_from();
    }
    return attached;
  }
  // The workers do what the master says until it has nothing more to say.
  // The model of a world is at `step_`, or at the step it starts cold from.
  void Form() {
    for (bool more = true; more;) {
      more = false;
      for (const auto& [connection, id] : id_of_) {
        for (auto& message :
             output_.Take(connection, v1::MasterMessage::kPrepare)) {
          prepared_[connection] = message.prepare();
          v1::WorkerMessage offer;
          offer.mutable_offer()->set_generation(message.prepare().generation());
          Say(connection, offer);
          more = true;
        }
        for (auto& message :
             output_.Take(connection, v1::MasterMessage::kOffers)) {
          v1::WorkerMessage connected;
          connected.mutable_connected()->set_generation(
              message.offers().generation());
          Say(connection, connected);
          if (prepared_[connection].urgent()) BeLevel(connection);
          more = true;
        }
        if (!output_.Take(connection, v1::MasterMessage::kSwitch).empty()) {
          BeLevel(connection);
          more = true;
        }
      }
    }
  }
  // Rank 0 speaks for all.
  void BeLevel(ConnectionId connection) {
    const v1::Prepare& prepare = prepared_[connection];
    if (prepare.members(0).worker_id() != id_of_[connection]) return;
    if (prepare.cold()) {
      step_ = prepare.cold_step();
      if (prepare.kept().empty()) lineage_ = prepare.generation();
      totals_.clear();
    }
    v1::WorkerMessage message;
    v1::Level& level = *message.mutable_level();
    level.set_generation(prepare.generation());
    level.set_step(step_);
    level.set_lineage(lineage_);
    AddTotals(level.mutable_totals());
    Say(connection, message);
  }
  template <typename Totals>
  void AddTotals(Totals* totals) {
    for (const auto& [id, records] : totals_) {
      v1::RecordTotal& total = *totals->Add();
      total.set_worker_id(id);
      total.set_records(records);
    }
  }
  std::vector<v1::Task> Tasks(ConnectionId connection) {
    std::vector<v1::Task> tasks;
    for (const auto& message :
         output_.Take(connection, v1::MasterMessage::kTask)) {
      tasks.push_back(message.task());
    }
    return tasks;
  }
  void Commit(ConnectionId connection, const v1::Task& task, int64_t end) {
    const int64_t begin =
        done_until_.try_emplace(task.task_id(), task.range().begin())
            .first->second;
    done_until_[task.task_id()] = end;
    totals_[id_of_[connection]] += end - begin;
    v1::WorkerMessage message;
    v1::Progress& progress = *message.mutable_progress();
    progress.set_generation(prepared_[connection].generation());
    progress.set_step(++step_);
    AddTotals(progress.mutable_totals());
    Say(connection, message);
  }
  void Done(ConnectionId connection, const v1::Task& task,
            double metric_sum = 0) {
    v1::WorkerMessage message;
    message.mutable_task_done()->set_task_id(task.task_id());
    message.mutable_task_done()->set_records(task.range().end() -
                                             task.range().begin());
    if (task.type() == v1::EVALUATION) {
      v1::MetricSums& sums = *message.mutable_task_done()->add_metrics();
      sums.set_name("accuracy");
      sums.set_kind("mean");
      sums.add_sums(metric_sum);
      sums.add_sums(
          static_cast<double>(task.range().end() - task.range().begin()));
    }
    Say(connection, message);
  }
  // Trains until nothing more is granted; the tasks that are no training.
  std::vector<v1::Task> TrainAll(ConnectionId connection) {
    std::vector<v1::Task> others = TrainData(connection);
    SayIdle(connection);
    for (const v1::Task& task : TrainData(connection)) others.push_back(task);
    return others;
  }
  // Until there is no more of it; what else was handed out.
  std::vector<v1::Task> TrainData(ConnectionId connection) {
    std::vector<v1::Task> others;
    for (auto tasks = Tasks(connection); !tasks.empty();
         tasks = Tasks(connection)) {
      for (const v1::Task& task : tasks) {
        if (task.type() == v1::TRAINING) {
          Commit(connection, task, task.range().end());
        } else {
          others.push_back(task);
        }
      }
    }
    return others;
  }
  void SayIdle(ConnectionId connection) {
    v1::WorkerMessage message;
    message.mutable_idle()->set_generation(controller_->generation());
    Say(connection, message);
  }
  // A copy of the model that is being saved.
  struct Saved {
    int64_t step = 0;
    int64_t lineage = 0;
    v1::Ledger ledger;
    std::string run = "run";
  };
  Saved BeginSave(ConnectionId connection) {
    v1::WorkerMessage begin;
    begin.mutable_checkpoint_begin()->set_step(step_);
    begin.mutable_checkpoint_begin()->set_lineage(lineage_);
    Say(connection, begin);
    const auto replies = output_.Take(connection, v1::MasterMessage::kLedger);
    EXPECT_EQ(replies.size(), 1u);
    EXPECT_EQ(replies.at(0).ledger().ledger().step(), step_);
    return {step_, lineage_, replies.at(0).ledger().ledger(),
            replies.at(0).ledger().run()};
  }
  void Publish(const Saved& saved) { on_disk_[saved.step] = saved; }
  void ReportSave(ConnectionId connection, const Saved& saved,
                  const std::string& error = "") {
    v1::WorkerMessage done;
    done.mutable_checkpoint_done()->set_step(saved.step);
    done.mutable_checkpoint_done()->set_lineage(saved.lineage);
    done.mutable_checkpoint_done()->set_error(error);
    Say(connection, done);
  }
  // A checkpoint of the present step, saved.
  void Checkpoint(ConnectionId connection) {
    const Saved saved = BeginSave(connection);
    Publish(saved);
    ReportSave(connection, saved);
  }
  void Break(ConnectionId connection) {
    controller_->OnClosed(now_, connection, absl::UnavailableError("lost"));
  }

  JobController::Options options_;
  Recorder output_;
  ControllerHandle controller_{now_};
  std::map<int64_t, Saved> on_disk_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  int64_t step_ = 0;
  int64_t lineage_ = 0;
  std::map<ConnectionId, int64_t> id_of_;
  std::map<ConnectionId, v1::Prepare> prepared_;
  std::map<int64_t, int64_t> totals_;
  std::map<int64_t, int64_t> done_until_;
};

}  // namespace elasticdl::master
