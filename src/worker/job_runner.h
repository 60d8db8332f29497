// What a worker does for its job once it knows it: a loop over events (messages
// of the master, minibatches that are ready, a wish to leave). One thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "batch_pipeline.h"
#include "elasticdl/checkpoint/async_saver.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/v1/master.pb.h"
#include "prediction_writer.h"
#include "replica.h"
#include "training_session.h"

namespace elasticdl::worker {

struct Event {
  enum class Kind {
    kMessage,
    kTraining,
    kOther,
    kWorldConnected,
    kLeave,
    kSaveDone,
    kMasterBack,
    kMasterLost
  };
  Kind kind = Kind::kMessage;
  // kMessage.
  v1::MasterMessage message;
  // kTraining, kOther (evaluation and prediction): shared with its feeder.
  std::shared_ptr<Minibatch> minibatch;
  // kWorldConnected.
  int64_t generation = 0;
};
using EventQueue = Queue<Event>;

// Sends to the master; must not block. Called from several threads.
using SendFunction = std::function<void(v1::WorkerMessage)>;

// Runs on the training thread.
class JobRunner {
 public:
  struct Deps {
    model::Model& model;
    EventQueue& events;
    // Also called by the threads that save checkpoints and make worlds.
    SendFunction send;
    // The job's token, known to all members of a world.
    std::string secret;
  };
  // What `deps` refers to must outlive the runner.
  static absl::StatusOr<std::unique_ptr<JobRunner>> Create(
      const v1::Welcome& welcome, const Deps& deps);
  ~JobRunner();

  // Says Ready and works until Stop, Leave or the loss of the master. Returns
  // the exit code.
  int Run();

  // A message of the master; thread-safe and non-blocking. Tasks and the making
  // of worlds go on during a step, the rest waits in the queue of events.
  void Receive(v1::MasterMessage message);
  // The stream to the master has ended for good; thread-safe.
  void OnMasterLost();
  // There is a new stream, to a master that knows nothing of this worker but
  // its id; thread-safe.
  void OnMasterBack();

 private:
  JobRunner(const v1::Welcome& welcome, const Deps& deps);
  absl::Status SetUp(const v1::Welcome& welcome, const std::string& secret);
  absl::Status SetUpTraining(const std::string& secret);
  absl::Status WarmUp(const v1::Task& task);
  void AddTask(v1::Task task);
  absl::StatusOr<data::DataReader*> OpenReader(const std::string& origin);
  // Tells the master the shards, if only the model's own reader knows them.
  absl::Status AddShards(v1::Ready& ready);
  absl::StatusOr<std::unique_ptr<BatchPipeline>> MakePipeline(
      const std::string& origin, Mode mode, Event::Kind kind);

  // Each returns an error that fails the job.
  absl::Status Handle(Event event);
  absl::Status HandleMessage(const v1::MasterMessage& message);
  absl::Status Train();
  void AfterEntering();
  void AfterStep(const WorkDone& done);
  void AfterHalt();
  absl::Status Evaluate(Minibatch& minibatch);
  absl::Status Predict(Minibatch& minibatch);
  absl::Status TrainEnd(const v1::Task& task);
  absl::Status OnEvaluationDone(const v1::EvaluationDone& done);

  void LogSpeed() const;
  void SendReady(v1::Ready ready);
  // Tells a new master what the old one may not have heard.
  void RepeatReports();
  void SendEvaluationDue();
  void SendStopTraining();
  void SendStarving();
  void SendStuck(const std::string& where, absl::Duration age);
  bool CheckpointDue() const;
  // Copies the model, and asks for its ledger as soon as the step is settled.
  void BeginCheckpoint();
  void AskLedger();
  void SubmitCheckpoint(const v1::LedgerReply& reply);
  void FinishCheckpoints();
  // In a last world, as its rank 0: sees to it that the model is saved, and
  // says so when it is. To be called again when a save is over.
  void SaveLast();
  void StartLeaving();
  void SendDone(const v1::Task& task, int64_t records,
                std::vector<model::MetricSums> metrics,
                int64_t output_bytes = 0);
  void Fail(const absl::Status& status);
  bool CheckpointsWanted() const { return !job_.checkpoint_dir().empty(); }

  const v1::JobSpec job_;
  const int64_t worker_id_;
  model::Model& model_;
  EventQueue& events_;
  const SendFunction send_;

  std::map<std::string, std::unique_ptr<data::DataReader>> readers_;
  bool has_own_reader_ = false;
  std::unique_ptr<Replica> replica_;
  std::optional<model::CallbackSet> callbacks_;
  std::optional<model::MetricSet> metrics_;
  std::unique_ptr<model::PredictionProcessor> processor_;
  std::optional<PredictionWriter> writer_;
  std::unique_ptr<checkpoint::AsyncSaver> saver_;

  // Something is wrong for good; the master has been told this.
  bool failed_ = false;
  std::string failure_;
  // The newest task that came; set by the thread that receives.
  std::atomic<int64_t> last_task_id_ = 0;
  // The last reports of tasks; a new master may not know them.
  std::deque<v1::WorkerMessage> reported_;
  bool leaving_ = false;
  bool leaving_sent_ = false;
  std::optional<int> exit_code_;

  double learning_rate_ = 0;
  // The step that the callbacks were told of last, and the evaluation.
  int64_t begun_step_ = -1;
  int64_t evaluated_step_ = -1;
  int64_t evaluated_records_ = 0;
  // For the speed that the log tells at the end: since the step that ended the
  // warm-up.
  absl::Time measured_since_;
  int64_t measured_records_ = 0;
  int64_t steps_here_ = 0;

  // A copy of the model whose step is not settled yet; and those that wait for
  // their ledger, by step.
  std::optional<checkpoint::OwnedSnapshot> unsettled_snapshot_;
  int64_t unsettled_step_ = -1;
  std::map<int64_t, checkpoint::OwnedSnapshot> waiting_snapshots_;
  int64_t last_checkpoint_step_ = -1;
  // The world in which a ledger was asked for last.
  int64_t asked_generation_ = 0;
  // Given to the saver and not heard of since.
  int64_t saves_under_way_ = 0;
  // The last world for which Saved was said.
  int64_t saved_generation_ = 0;

  std::unique_ptr<elastic::Watchdog> watchdog_;
  std::unique_ptr<elastic::WorldLink> link_;
  std::unique_ptr<TrainingSession> session_;

  // Last: their threads use what is above.
  std::unique_ptr<BatchPipeline> training_;
  std::unique_ptr<BatchPipeline> evaluation_;
  std::unique_ptr<BatchPipeline> prediction_;
};

}  // namespace elasticdl::worker
