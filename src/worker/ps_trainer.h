// Training with parameter servers (docs/design/0006-parameter-servers.md): pull
// the model, compute a gradient, push it. Workers do not know each other and
// hold no state.
//
//   asynchronous: a minibatch is done when every server has applied its push;
//                 the next one is computed meanwhile
//   synchronous:  the push is staged; a minibatch is done when the master says
//                 in which version it is, or it is computed again
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "data_sources.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/ps/client.h"
#include "elasticdl/ps/server_book.h"
#include "elasticdl/v1/job.pb.h"
#include "elasticdl/v1/master.pb.h"
#include "environment.h"
#include "event.h"
#include "replica.h"
#include "server_pipe.h"
#include "server_saver.h"
#include "task_reports.h"
#include "trainer.h"

namespace elasticdl::worker {

class PsTrainer : public Trainer {
 public:
  struct Deps {
    const v1::JobSpec& job;
    int64_t worker_id = 0;
    // The job's token.
    std::string secret;
    v1::Servers servers;
    // A checkpoint for servers that have no model; empty = initial weights.
    std::string restore_from;
    // Another worker gives one to the servers.
    bool await_model = false;
    model::Model& model;
    Replica& replica;
    DataSources& data;
    TaskReports& reports;
    EventQueue& events;
    SendFunction send;
    Environment& environment;
  };
  // What `deps` refers to must outlive the trainer.
  static absl::StatusOr<std::unique_ptr<PsTrainer>> Create(const Deps& deps);
  ~PsTrainer() override;

  bool Hear(const v1::MasterMessage& message) override;
  // A new master changes nothing for what waits for servers.
  void Interrupt(const std::string& reason) override {}
  void Abort(const std::string& reason) override;
  absl::Status Handle(const Event& event) override;
  bool HasWork() const override {
    return !over_ && !leaving_ && !paused_ && !staged_.has_value() &&
           (!pending_.empty() || pushing_.has_value());
  }
  absl::Status Work() override;
  absl::Status Refresh() override;
  void BeforeWaiting() override;
  bool WaitsForData() const override { return false; }
  bool has_state() const override { return true; }
  void Finish() override;

 private:
  struct Pending {
    std::shared_ptr<Minibatch> minibatch;
    std::optional<Batch> batch;
  };

  explicit PsTrainer(const Deps& deps);
  absl::Status SetUp();
  // Tells the servers what the model is and how it begins, unless they know.
  absl::Status Connect();
  v1::PsDefinition Definition() const;
  // Every server has values.
  absl::StatusOr<bool> HaveModel();
  absl::Status AwaitModel();
  absl::Status GiveModel();
  absl::Status HandleMessage(const v1::MasterMessage& message);
  absl::Status OnPushResult(const v1::PushResult& result);
  absl::Status OnEvaluationDone(const v1::EvaluationDone& done);
  absl::Status TrainEnd(const v1::Task& task);
  absl::Status Train(Pending& next);
  // Calls `pull`. A server that has lost its log is told the model again.
  absl::Status WithModel(const std::function<absl::Status()>& pull);
  // Must the minibatch that is so many after the last pull begin with one?
  bool DensePullDue(int64_t since_pull) const;
  void PullAhead();
  absl::Status Compute(const Pending& next, double& loss);
  absl::Status Push(const Pending& next);
  // Asynchronous: waits until all servers have what was pushed.
  absl::Status FinishPush();
  void AfterMinibatch(const Minibatch& minibatch);
  void Report();
  void SendStaged();
  void SendIdle();
  void SendPaused(int64_t number);
  void AskStopIfWanted();
  // OK when it only says that this worker is to stop.
  absl::Status UnlessCancelled(const absl::Status& status) const;

  const Deps deps_;
  const bool async_;
  ps::ServerBook book_;
  ps::Client client_;
  ServerPipe pipe_;
  std::optional<model::CallbackSet> callbacks_;
  std::deque<Pending> pending_;
  std::unique_ptr<ServerSaver> saver_;
  bool connected_ = false;
  // The master is about to have the model saved.
  bool paused_ = false;
  bool leaving_ = false;
  // No more training.
  bool over_ = false;
  bool idle_sent_ = false;
  double learning_rate_ = 0;
  // Asynchronous: on its way to the servers.
  std::optional<Pending> pushing_;
  // Minibatches since they were pulled; below 0: they were not yet.
  int64_t since_pull_ = -1;
  // Synchronous: what the master was asked for, until it answers.
  std::optional<v1::Staged> staged_;
  double last_loss_ = 0;
  int64_t trained_records_ = 0;
  int64_t reported_records_ = 0;
  absl::Time last_report_;
  int64_t evaluated_step_ = -1;
  bool stop_sent_ = false;

  // Last: its threads use what is above.
  std::unique_ptr<MinibatchSource> source_;
};

}  // namespace elasticdl::worker
