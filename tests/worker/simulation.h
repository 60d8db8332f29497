// A whole training job in one process and in simulated time: the real logic of
// the master (JobController) and of the workers (JobRunner), with messages,
// deaths, saves and the clock in the hands of a seeded random schedule. The
// model's weights are compared with the ledger at every checkpoint, evaluation
// and at the end (counting_model.h).
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "counting_model.h"
#include "elasticdl/common/clock.h"
#include "job_controller.h"
#include "job_runner.h"
#include "sim_collective.h"
#include "stage.h"

namespace elasticdl::worker::test {

struct SimulationOptions {
  uint32_t seed = 0;
  int workers = 3;
  CountedData data;
  int64_t minibatch_size = 4;
  int64_t minibatches_per_task = 2;
  int64_t checkpoint_steps = 0;
  int64_t evaluation_steps = 0;
  int64_t global_batch_size = 0;
  // The job ends at this step; a callback ends it after this one; 0 = neither.
  int64_t max_step = 0;
  int64_t stop_after = 0;
  // Joiners are given the state while the others train, so many bytes of it per
  // second (0 = as fast as may be).
  bool background_joins = false;
  double join_bandwidth = 0;
  // Models are not copied before they are saved, but read while they change.
  bool live_saves = false;
  // States outlive their workers.
  bool keep_state = false;
  // How often each happens, of 100,000 actions, and how many faults there are
  // at most: after them the job must come to its end.
  int kills = 0;
  int leaves = 0;
  int joins = 0;
  // Between two events, and in the middle of one: between two records of the
  // journal.
  int master_deaths = 0;
  // Broken streams of workers that live on.
  int flaps = 0;
  // Processes that do nothing any more, but live until they are killed.
  int hangs = 0;
  int slow_times = 0;
  int most_faults = 12;
  // Of 1000 saves, and of 1000 connections. A slow save ends long after others
  // that began later on other workers.
  int failed_saves = 0;
  int slow_saves = 0;
  int failed_connections = 0;
  // Of 1000 loads: the worker that restores a checkpoint finds it damaged, for
  // ever.
  int damaged_loads = 0;
  // A job of these sizes that takes longer hangs.
  int64_t most_actions = 400000;

  std::string ToString() const;
};

// What a run was like.
struct SimulationReport {
  int64_t actions = 0;
  int64_t messages = 0;
  int kills = 0;
  int hangs = 0;
  int leaves = 0;
  int joins = 0;
  int master_deaths = 0;
  int cut_backs = 0;
  // Members that got the state while others trained.
  int caught_up = 0;
  // Worlds that were to begin with the state of a lost worker.
  int kept = 0;
  int worlds = 0;
  // Worlds of survivors who did not connect again.
  int shrunk = 0;
  int checkpoints = 0;
  int damaged_loads = 0;
  int failed_saves = 0;
  int slow_saves = 0;
  // Not copied first.
  int live_saves = 0;
  int evaluations = 0;
  // Jobs that ended before their data.
  int early_ends = 0;
};

class Simulation : public master::WorkerPort, public master::JobObserver {
 public:
  explicit Simulation(const SimulationOptions& options);
  ~Simulation() override;

  // To the end of the job. An error says what was wrong, and where in the run.
  absl::Status Run();
  const SimulationReport& report() const { return report_; }

 private:
  class SimClock;
  class SimEnvironment;
  class SimKeptStates;
  class SimQueue;
  class SimSaver;
  struct Worker;
  using ConnectionId = master::ConnectionId;
  using TrainedSet = std::vector<bool>;

  // From the master to a worker: a message, or the end of the stream.
  struct Delivery {
    v1::MasterMessage message;
    std::optional<absl::Status> end;
    // With a ledger: what is in it.
    std::shared_ptr<const TrainedSet> trained;
  };
  struct Saved {
    checkpoint::OwnedSnapshot snapshot;
    TrainedSet trained;
    bool damaged = false;
  };
  // Made by a process that was killed before it could tell; appears on the disk
  // at this action or later.
  struct LateSave {
    Saved saved;
    int64_t ready_at = 0;
  };

  // ---- WorkerPort, JobObserver ----
  void Send(const std::vector<ConnectionId>& connections,
            v1::MasterMessage message) override;
  void Close(ConnectionId connection, const absl::Status& status) override;
  void SendToServer(int, v1::MasterMessage) override {}
  void KillWorker(int64_t worker_id, const std::string& reason) override;
  void OnWorkerReady(int64_t, int64_t, int64_t) override {}
  void OnWorkerLost(int64_t, const std::string&) override {}
  void OnCommit(const master::CommittedRange& range, int64_t step,
                int64_t generation) override;
  void OnCutBack(int64_t step) override;
  void OnProgress(const v1::Progress&, int64_t) override {}
  void OnWorld(const master::WorldChange&) override { ++report_.worlds; }
  void OnFirstStep(int64_t, int64_t) override {}
  void OnCheckpoint(const v1::CheckpointDone& done) override {
    const bool abandoned =
        done.lineage() <= abandoned_lineage_ && done.step() > cut_step_;
    if (done.error().empty() && !abandoned) saves_heard_.insert(done.step());
  }
  void OnEvaluation(const master::EvaluationResult& result) override;
  void OnTaskDone(int64_t) override {}
  void OnServersScaled(int) override { Wrong("there are no servers"); }
  void OnQuarantined(const master::QuarantinedRange&) override {
    Wrong("records were quarantined");
  }
  void OnPart(const master::PartChange& change) override { Note(change.text); }
  void OnMessage(const std::string& text) override { Note(text); }

  // ---- the schedule ----
  struct Action;
  std::vector<std::function<void()>> PossibleActions();
  void AddFaults(std::vector<std::function<void()>>& actions);
  bool Happens(int per_100000);
  void StartMaster();
  void RestartMaster();
  void BreakStream(Worker& worker);
  void Hang(Worker& worker);
  void StartWorker();
  void ConnectWorker(Worker& worker, bool resuming);
  void DeliverToMaster(Worker& worker);
  void DeliverToWorker(Worker& worker);
  void RunWorker(Worker& worker);
  void KeepWeights(Worker& worker);
  void KillProcess(Worker& worker, const std::string& reason);
  void TellPodEnd(Worker& worker);
  // A save that is not a copy is read bit by bit, and is one when its ledger is
  // known.
  bool CanGoOnWithSave(Worker& worker);
  void GoOnWithSave(Worker& worker);
  absl::Status ReadSome(Worker& worker);
  absl::Status MakeCopy(Worker& worker);
  void FinishSave(Worker& worker);
  void FinishLateSave();
  bool Refused(const checkpoint::Snapshot& snapshot);
  int64_t WhenSaved();
  // Nothing else can happen: what takes long ends now.
  bool HurrySaves();
  void PassTime();
  void WaitForSomething();
  size_t Living() const;

  // ---- checks ----
  void Wrong(const std::string& what);
  void Note(const std::string& what);
  // How often each id is in the audit, up to a step.
  std::vector<int> TimesCommitted(
      int64_t last_step = std::numeric_limits<int64_t>::max()) const;
  TrainedSet Audit() const;
  void CheckModel(const std::string& when, absl::Span<const float> weights,
                  const TrainedSet& ledger);
  absl::Status CheckEnd();
  absl::Status CheckLedgerAtEnd(const std::vector<int>& times);
  absl::Status CheckSavedAtEnd(int exit_code, const TrainedSet& trained);

  const SimulationOptions options_;
  std::mt19937 random_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  std::unique_ptr<SimClock> clock_;
  SimNetwork network_;
  SimulationReport report_;
  std::string wrong_;
  std::deque<std::string> notes_;
  int faults_left_ = 0;

  std::vector<v1::JournalRecord> journal_;
  // Before the record after so many more, the master dies; 0 = it does not.
  int records_to_death_ = 0;
  std::unique_ptr<SimKeptStates> kept_;
  std::unique_ptr<master::JobController> controller_;
  // Looking for checkpoints, as the controller asked.
  master::CheckpointStore store_;
  std::deque<master::CheckpointQuery> queries_;
  std::deque<master::CheckpointAnswer> answers_;
  // The audit: ids that were committed, and cuts back to a step.
  struct Commit {
    int64_t step = 0;
    bool cut_back = false;
    std::vector<int64_t> ids;
  };
  std::vector<Commit> commits_;
  // By version: the share of the validation records that was trained.
  std::map<int64_t, double> evaluated_;
  std::map<int64_t, Saved> disk_;
  std::vector<LateSave> late_saves_;
  // Steps whose save was reported to the master, and that are not abandoned:
  // not beyond the last cut back in a lineage from before it.
  std::set<int64_t> saves_heard_;
  int64_t cut_step_ = 0;
  int64_t abandoned_lineage_ = -1;
  // Writers of older lineages are refused, if they look in time.
  checkpoint::Lineage fence_;

  ConnectionId next_connection_ = 1;
  int64_t next_worker_id_ = 0;
  int target_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace elasticdl::worker::test
