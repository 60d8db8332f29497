// Training as a member of changing worlds: enters worlds, runs rounds, counts
// which records of which worker are in the model, and reports settled steps to
// the master (docs/design/0003-elastic-allreduce.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "batch_mover.h"
#include "catch_up.h"
#include "elastic_trainer.h"
#include "elasticdl/elastic/leveler.h"
#include "elasticdl/elastic/load_report.h"
#include "elasticdl/rendezvous/elastic_loop.h"
#include "elasticdl/rendezvous/world_link.h"
#include "elasticdl/v1/master.pb.h"
#include "elasticdl/v1/world.pb.h"
#include "environment.h"
#include "event.h"
#include "minibatch.h"
#include "record_totals.h"
#include "replica.h"

namespace elasticdl::worker {

// What one call of Work did.
struct WorkDone {
  // This worker is in a new world, level with its members.
  bool entered = false;
  // The model was updated.
  bool stepped = false;
  double loss = 0;
  // Of this worker.
  int64_t records = 0;
  // The members have come to a halt that was asked for (Halt), and the step is
  // settled.
  bool halted = false;
};

// Runs on the training thread, except where said.
class TrainingSession {
 public:
  enum class Halt { kNone, kEvaluation, kOver };
  struct Options {
    int64_t worker_id = 0;
    int64_t minibatch_size = 64;
    // 0 = a minibatch per member.
    int64_t global_batch_size = 0;
    // Minibatches of each member in a step, if that is 0.
    int64_t accumulation_steps = 1;
    GradientCompression compression = GradientCompression::kNone;
    // How long a sum by NCCL may take.
    absl::Duration device_sum_timeout = kReduceTimeout;
    // How long a piece of a state may take; also the master's limit of silence
    // while a world is brought level.
    absl::Duration load_timeout = absl::Minutes(2);
    // A state of so many bytes is given to joiners while the others train; 0 =
    // none. So many bytes per second at most; 0 = what costs little.
    int64_t background_join_bytes = 0;
    double join_bandwidth = 0;
    // Rank 0 sends histograms of the model after every so many steps; 0: none.
    int64_t histogram_steps = 0;
    // Whether the members of any world come to a halt after this step.
    std::function<Halt(int64_t step)> halt_at = [](int64_t) {
      return Halt::kNone;
    };
    // If any; must outlive the session.
    elastic::Watchdog* watchdog = nullptr;
  };
  struct Deps {
    Replica& replica;
    rendezvous::WorldLink& link;
    SendFunction send;
    Environment& environment;
  };

  // What `deps` refers to must outlive the session.
  TrainingSession(Options options, const Deps& deps);

  // ---- events ---- A message from the master, as soon as it arrives: worlds
  // are formed and aborted while a step runs. True when OnMessage need not get
  // it. Any thread.
  bool Hear(const v1::MasterMessage& message);
  // The same message in its turn: the order of Switch among the messages that
  // let members go on is the same for all members.
  void OnMessage(const v1::MasterMessage& message);
  void OnConnected(int64_t generation) { loop_.Connected(generation); }
  // A task is on its way through the pipeline. Any thread.
  void AnnounceTask() {
    no_more_tasks_ = false;
    undelivered_.fetch_add(1);
  }
  void AddMinibatch(std::shared_ptr<Minibatch> minibatch);

  // ---- work ----
  // There is something to do: a world to enter, or a round.
  bool HasWork() const;
  // A step of a given size waits for data that this worker was not given.
  bool Starves() const;
  // Nothing to do but to wait for data that is on its way.
  bool WaitsForData() const {
    return world() != nullptr && !halted_ && !idle_ && WantsData() &&
           undelivered_.load() > 0;
  }
  // The next thing to do is a world to enter.
  bool HasWorldToEnter() const { return loop_.ToEnter() != nullptr; }
  // Does it. `learning_rate` is that of the step to come; `released` is called
  // for each minibatch that is not needed any more. An error fails the job.
  absl::StatusOr<WorkDone> Work(double learning_rate);
  std::function<void()> released = [] {};

  // One minibatch without consequences, before the first world.
  absl::Status WarmUp(const Batch& batch) { return trainer_.WarmUp(batch); }

  // ---- wishes ---- After the current step, which all members reach: no more
  // steps until Resume (kEvaluation), or at all (kOver).
  void AskHalt(Halt halt);
  // For a later round: all members come to a halt after it.
  void AskEvaluation() { want_evaluation_ = true; }
  void AskStop(const std::string& reason) { stop_reason_ = reason; }
  void Resume();
  // The master says that training is done: all members of that world are at
  // rest. False: already known, or about a world that this member has left; its
  // members come to rest again in the next one.
  bool End(int64_t generation);
  // No more data into the model from this worker.
  void StopTakingData() { taking_data_ = false; }

  // ---- state ----
  const rendezvous::World* world() const { return loop_.world(); }
  // The model is that of a world, this one or the last.
  bool has_state() const { return has_state_; }
  // The generation of the cold world that its model descends from.
  int64_t lineage() const { return lineage_; }
  bool halted() const { return halted_; }
  Halt halt() const { return halt_; }
  bool over() const { return halt_ == Halt::kOver; }
  // Not empty: a callback of some member ended the training.
  const std::string& stop_reason() const { return stop_reason_; }
  // What every member of the world has in its model.
  int64_t settled_step() const { return settled_step_; }
  // Rank 0's report of that, if there is something new.
  void Report();
  bool is_reporter() const { return world() != nullptr && world()->rank == 0; }

 private:
  struct Pending {
    std::shared_ptr<Minibatch> minibatch;
    std::optional<Batch> batch;
    // On a device: `batch` is on its way there.
    std::optional<BatchMover::Moving> moving;
  };

  void OnWake(int64_t generation);
  void UpdateStepping();
  bool RoundPossible() const;
  // This member puts data into the next round if it has some.
  bool WantsData() const;
  size_t Share() const;
  int64_t UsualRecords() const;
  absl::StatusOr<WorkDone> EnterWorld();
  // ABORTED: another world has overtaken this one.
  absl::Status StartCold(const rendezvous::World& world,
                         elastic::LoadReport& report);
  // DATA_LOSS or NOT_FOUND: the checkpoint cannot be used; the weights are no
  // model any more.
  absl::Status RestoreCheckpoint(const rendezvous::World& world,
                                 elastic::LoadReport& report);
  // From what a lost worker has left. DATA_LOSS: it cannot be used.
  absl::Status StartKept(const rendezvous::World& world);
  // What is to be known of the state that is kept: of the step that a round
  // leads to, and of the one at hand.
  void PlanKept(const elastic::RoundSummary& summary, double learning_rate);
  void PublishKept();
  void WarnNotKept() const;
  absl::StatusOr<elastic::Levelled> BringLevel(
      collective::Communicator& communicator, elastic::LoadReport& report);
  // What the donor tells the master for all members.
  void SendLevel(const v1::DonorState& donor);
  v1::DonorState MakeDonorState() const;
  absl::Status Adopt(const v1::DonorState& donor);
  void LeaveWorld();
  void BreakWorld(const absl::Status& status, bool kept_unusable = false,
                  bool checkpoint_unusable = false);
  absl::StatusOr<WorkDone> DoRound(double learning_rate);
  absl::StatusOr<std::vector<WeightedBatch>> TakeBatches(
      elastic::MemberWord& word);
  // Takes the tensors of a minibatch, and starts their way to the device.
  void Accept(Pending& pending, Batch batch);
  // The same for those of the round after the next `share` that are ready.
  void MoveAhead(size_t share);
  // Whether all members have done this round, too. An error of the world.
  absl::StatusOr<bool> ConfirmFirst(const Round& round);
  void FinishRound(const Round& round, size_t used, bool confirmed,
                   WorkDone& done);
  absl::Status SendHistograms();
  absl::Status PassState(const elastic::RoundSummary& summary);
  void DropMinibatches(int64_t records);
  void SendIdle();

  const Options options_;
  Replica& replica_;
  rendezvous::WorldLink& link_;
  const SendFunction send_;
  Environment& environment_;
  rendezvous::ElasticLoop loop_;
  ElasticTrainer trainer_;
  CatchUp catch_up_;
  // If the replica is on a device.
  std::unique_ptr<BatchMover> mover_;

  std::deque<Pending> pending_;
  std::atomic<int64_t> undelivered_ = 0;
  std::atomic<bool> no_more_tasks_ = false;
  bool taking_data_ = true;

  // The replica is that of a world (not the fresh one of this process).
  bool has_state_ = false;
  bool fresh_ = true;
  // The cold world that its model descends from.
  int64_t lineage_ = 0;
  RecordTotals totals_;
  keep::Facts facts_;
  int64_t settled_step_ = 0;
  // Rounds of the current world, including those without data.
  int64_t rounds_ = 0;
  // Its members meet after the first step: all of them, or none.
  bool confirms_first_ = false;

  Halt halt_ = Halt::kNone;
  bool halted_ = false;
  bool idle_ = false;
  bool want_evaluation_ = false;
  std::string stop_reason_;

  int64_t reported_step_ = -1;
  // The step at which the world was entered: the first report after it comes at
  // once, so that people know that it works.
  int64_t level_step_ = -1;
  absl::Time last_round_end_ = absl::InfinitePast();
  // When this member had its gradients of the last round that was begun.
  absl::Time computed_at_ = absl::InfinitePast();
  bool report_soon_ = false;
  absl::Time last_report_;
  double last_loss_ = 0;
  double last_learning_rate_ = 0;
};

}  // namespace elasticdl::worker
