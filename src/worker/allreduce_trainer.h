// Elastic all-reduce (AllreduceStrategy, and Local as a world of one): steps
// with the members of a world, and everything around a step: callbacks,
// checkpoints, halts for an evaluation or at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "checkpoint_coordinator.h"
#include "data_sources.h"
#include "elasticdl/elastic/watchdog.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/rendezvous/world_link.h"
#include "elasticdl/v1/job.pb.h"
#include "environment.h"
#include "event.h"
#include "replica.h"
#include "task_reports.h"
#include "trainer.h"
#include "training_session.h"

namespace elasticdl::worker {

class AllReduceTrainer : public Trainer {
 public:
  struct Deps {
    const v1::JobSpec& job;
    int64_t worker_id = 0;
    // The secret, and where this worker is reached.
    rendezvous::WorldLink::Options link;
    model::Model& model;
    Replica& replica;
    DataSources& data;
    TaskReports& reports;
    EventQueue& events;
    SendFunction send;
    Environment& environment;
    // If any.
    elastic::Watchdog* watchdog = nullptr;
  };
  // What `deps` refers to must outlive the trainer.
  static absl::StatusOr<std::unique_ptr<AllReduceTrainer>> Create(
      const Deps& deps);
  ~AllReduceTrainer() override;

  // Reads, feeds and trains one minibatch that others have trained before, and
  // forgets it: the first step then takes no longer than the others.
  absl::Status WarmUp(const v1::Task& task);

  bool Hear(const v1::MasterMessage& message) override;
  void Interrupt(const std::string& reason) override;
  void Abort(const std::string& reason) override;
  absl::Status Handle(const Event& event) override;
  bool HasWork() const override { return session_->HasWork(); }
  absl::Status Work() override;
  absl::Status Refresh() override { return absl::OkStatus(); }
  void BeforeWaiting() override;
  bool WaitsForData() const override { return session_->WaitsForData(); }
  bool has_state() const override { return session_->has_state(); }
  void Finish() override;

 private:
  explicit AllReduceTrainer(const Deps& deps) : deps_(deps) {}
  absl::Status SetUp();

  absl::Status HandleMessage(const v1::MasterMessage& message);
  absl::Status OnEvaluationDone(const v1::EvaluationDone& done);
  absl::Status TrainEnd(const v1::Task& task);
  absl::Status OnLedger(const v1::LedgerReply& reply);
  absl::Status BeginStep();
  absl::Status AfterEntering();
  absl::Status AfterStep(const WorkDone& done);
  absl::Status AfterHalt();
  // A callback of this worker wants no more training.
  void AskStopIfWanted();
  // In a last world, as its rank 0: sees to it that the model is saved, and
  // says so when it is. To be called again when a save is over.
  absl::Status SaveLast();
  void Leave();
  void SendStopTraining();
  void LogSpeed() const;
  // Tests compare the lines of all members.
  absl::Status LogModel();

  const Deps deps_;
  std::optional<model::CallbackSet> callbacks_;
  std::unique_ptr<rendezvous::WorldLink> link_;
  std::unique_ptr<TrainingSession> session_;
  std::unique_ptr<CheckpointCoordinator> checkpoints_;

  bool leaving_ = false;
  bool leaving_sent_ = false;
  double learning_rate_ = 0;
  // The step that the callbacks were told of last, and the evaluation.
  int64_t begun_step_ = -1;
  int64_t evaluated_step_ = -1;
  // Of the last EvaluationDone.
  int64_t heard_step_ = -1;
  // The last world for which Saved was said.
  int64_t saved_generation_ = 0;
  // The step of the last LogModel.
  int64_t logged_step_ = -1;
  // In the steps that this worker took part in.
  int64_t trained_records_ = 0;
  // For the speed that the log tells at the end: since the step that ended the
  // warm-up.
  absl::Time measured_since_;
  int64_t measured_records_ = 0;
  int64_t steps_here_ = 0;

  // Last: its threads use what is above.
  std::unique_ptr<MinibatchSource> source_;
};

}  // namespace elasticdl::worker
