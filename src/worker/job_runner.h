// A worker's main loop, once it knows its job: handles events (messages from
// the master, minibatches that are ready, a request to leave). One thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data_sources.h"
#include "elasticdl/checkpoint/snapshot.h"
#include "elasticdl/elastic/watchdog.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/rendezvous/world_link.h"
#include "elasticdl/v1/master.pb.h"
#include "environment.h"
#include "evaluator.h"
#include "event.h"
#include "predictor.h"
#include "replica.h"
#include "task_reports.h"
#include "telemetry.h"
#include "trainer.h"

namespace elasticdl::worker {

// Runs on the training thread, except where said.
class JobRunner {
 public:
  struct Deps {
    model::Model& model;
    EventQueue& events;
    // Also called by the threads that save checkpoints and make worlds.
    SendFunction send;
    // For making worlds: the secret, and where this worker is reached. The
    // trainer fills in the rest.
    rendezvous::WorldLink::Options link;
    Environment& environment;
    Execution execution = {};
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

  // For tests, when Run is not running.
  Replica& replica() { return *replica_; }

 private:
  JobRunner(const v1::Welcome& welcome, const Deps& deps);
  absl::Status SetUp(const v1::Welcome& welcome);
  absl::Status SetUpTraining(const v1::Welcome& welcome);
  // For evaluation and prediction: the model of a checkpoint, if there is one.
  absl::Status SetUpTrained(const std::string& path);
  // The network that fits this checkpoint, of which names are enough.
  // `restored`: its values follow, initial ones are not needed.
  absl::Status CreateTrained(const checkpoint::Loaded& trained, bool restored);
  absl::Status SetUpPrediction();

  bool HasWork() const;
  // Each returns an error that fails the job.
  absl::Status Handle(const Event& event);
  absl::Status HandleMessage(const Event& event);
  std::optional<Event> NextEvent(bool work);
  void Leave();
  // Tells a new master what the old one may not have heard.
  void RepeatReports();
  void SendReady(v1::Ready ready);
  void SendLeaving();
  void SendFatal();
  void SendStuck(const std::string& where, absl::Duration age);
  void Fail(const absl::Status& status);

  const v1::JobSpec job_;
  const int64_t worker_id_;
  const Deps deps_;
  Telemetry telemetry_;
  DataSources data_;
  TaskReports reports_;
  std::unique_ptr<elastic::Watchdog> watchdog_;
  std::unique_ptr<Replica> replica_;
  // A checkpoint whose rows are used where they are.
  checkpoint::Loaded trained_;
  std::unique_ptr<RowSource> rows_;

  // Something is wrong for good; the master has been told this.
  std::optional<std::string> failure_;
  // Masters after the first; set by the thread that receives.
  std::atomic<int64_t> masters_ = 0;
  // The newest task that came; set by the thread that receives.
  std::atomic<int64_t> last_task_id_ = 0;
  bool leaving_ = false;
  std::optional<int> exit_code_;

  // Each if the job has that kind of work. Last: their threads use what is
  // above.
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<Predictor> predictor_;
};

}  // namespace elasticdl::worker
