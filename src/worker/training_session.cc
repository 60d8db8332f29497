#include "training_session.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {
namespace {

// Often enough for a display, seldom enough to cost nothing.
constexpr absl::Duration kProgressInterval = absl::Milliseconds(200);

}  // namespace

TrainingSession::TrainingSession(Options options, const Deps& deps)
    : options_(std::move(options)),
      replica_(deps.replica),
      link_(deps.link),
      send_(deps.send),
      environment_(deps.environment),
      loop_(options_.worker_id),
      trainer_(replica_, options_.compression, options_.watchdog),
      last_report_(environment_.clock().Now()) {}

bool TrainingSession::Hear(const v1::MasterMessage& message) {
  // At once, not in its turn: the training thread may be waiting for data that
  // will never come.
  if (message.has_no_more_tasks()) no_more_tasks_ = true;
  return link_.Hear(message);
}

void TrainingSession::OnMessage(const v1::MasterMessage& message) {
  switch (message.message_case()) {
    case v1::MasterMessage::kPrepare:
      loop_.Prepare(message.prepare());
      break;
    case v1::MasterMessage::kSwitch:
      loop_.Switch(message.switch_().generation());
      break;
    case v1::MasterMessage::kDissolve:
      loop_.Dissolve(message.dissolve().generation());
      break;
    case v1::MasterMessage::kWake:
      OnWake(message.wake().generation());
      return;
    default:
      LogWarning("ignored a message of the master that this version does not ",
                 "know");
      return;
  }
  if (loop_.world() == nullptr) trainer_.LeaveWorld();
}

void TrainingSession::OnWake(int64_t generation) {
  // A late Wake of an earlier world says nothing about the data of this one.
  if (world() == nullptr || world()->generation != generation) return;
  idle_ = false;
  UpdateStepping();
}

void TrainingSession::AddMinibatch(std::shared_ptr<Minibatch> minibatch) {
  if (minibatch->last_of_task()) undelivered_.fetch_sub(1);
  pending_.push_back({std::move(minibatch), std::nullopt});
}

void TrainingSession::UpdateStepping() {
  loop_.SetStepping(!halted_ && !idle_);
}

void TrainingSession::AskHalt(Halt halt) {
  // The end is final. If an evaluation is due at the same step, the master
  // starts it.
  if (halt_ == Halt::kOver) return;
  halt_ = halt;
}

void TrainingSession::Resume() {
  if (halt_ == Halt::kOver) return;
  halt_ = Halt::kNone;
  halted_ = false;
  UpdateStepping();
}

bool TrainingSession::End(int64_t generation) {
  if (world() == nullptr || world()->generation != generation) return false;
  if (halt_ == Halt::kOver && halted_) return false;
  halt_ = Halt::kOver;
  halted_ = true;
  idle_ = false;
  UpdateStepping();
  return true;
}

bool TrainingSession::HasWork() const {
  return loop_.ToEnter() != nullptr || RoundPossible();
}

bool TrainingSession::RoundPossible() const {
  if (world() == nullptr || halted_ || idle_ || loop_.last_round_done()) {
    return false;
  }
  // A halt needs all members, but no data.
  if (!WantsData()) return true;
  if (pending_.size() >= Share()) return true;
  // Wait for data that is on its way. Do not wait for data that was never
  // granted, unless the step has a fixed size: the other members would wait,
  // too.
  return undelivered_.load() == 0 &&
         (options_.global_batch_size == 0 || no_more_tasks_.load());
}

bool TrainingSession::Starves() const {
  return options_.global_batch_size > 0 && world() != nullptr && !halted_ &&
         !idle_ && WantsData() && pending_.size() < Share() &&
         undelivered_.load() == 0 && !no_more_tasks_.load();
}

bool TrainingSession::WantsData() const {
  return halt_ == Halt::kNone && taking_data_ && stop_reason_.empty();
}

// How many minibatches this member puts into the next round. Those that cannot
// be shared equally go to the members in turn: otherwise, in a world with more
// members than minibatches, some would never train the data that they hold.
size_t TrainingSession::Share() const {
  if (options_.global_batch_size == 0) return 1;
  const int64_t whole = options_.global_batch_size / options_.minibatch_size;
  const int64_t size = world()->size();
  const int64_t rest = whole % size;
  // The same on all members, because they have done the same rounds.
  const int64_t first = rounds_ * rest % size;
  const int64_t place = (world()->rank - first + size) % size;
  return static_cast<size_t>(whole / size + (place < rest ? 1 : 0));
}

int64_t TrainingSession::UsualRecords() const {
  return options_.global_batch_size > 0
             ? options_.global_batch_size
             : options_.minibatch_size * world()->size();
}

absl::StatusOr<WorkDone> TrainingSession::Work(double learning_rate) {
  if (loop_.ToEnter() != nullptr) return EnterWorld();
  return DoRound(learning_rate);
}

// ---- worlds ----

absl::StatusOr<WorkDone> TrainingSession::EnterWorld() {
  WorkDone done;
  const rendezvous::World world = *loop_.ToEnter();
  trainer_.LeaveWorld();
  totals_.LeaveWorld();
  loop_.Enter();
  auto communicator = link_.Use(world.generation);
  if (communicator == nullptr) {
    // A newer world replaced this one; its Prepare is in the queue of events.
    loop_.Failed(world.generation);
    return done;
  }
  elastic::LoadReport report(world.generation, options_.load_timeout, send_);
  report.Tell(environment_.clock().Now(), v1::Loading::LOADING);
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.enter_world"));
  // In a cold world nobody has a model that counts, so rank 0 makes one before
  // it is sent to the others.
  if (world.cold) {
    const absl::Status started = StartCold(world, report);
    if (absl::IsAborted(started)) {
      BreakWorld(started);
      return done;
    }
    ELASTICDL_RETURN_IF_ERROR(started);
  }
  auto levelled = BringLevel(*communicator, report);
  if (absl::IsFailedPrecondition(levelled.status())) return levelled.status();
  if (!levelled.ok()) {
    BreakWorld(levelled.status());
    return done;
  }
  v1::DonorState donor;
  if (!donor.ParseFromString(levelled->meta)) {
    return absl::InternalError(absl::StrCat(
        "rank ", levelled->donor, " sent a state that cannot be understood"));
  }
  if (levelled->received) replica_.SetStep(levelled->step);
  lineage_ = levelled->lineage;
  // From here on the state is the donor's, even if the world breaks now: its
  // totals must be taken over with it.
  trainer_.AcceptBuffers();
  ELASTICDL_RETURN_IF_ERROR(Adopt(donor, levelled->received));
  totals_.EnterWorld(donor.totals(), world);
  link_.ForgetFormer();
  if (!levelled->world.ok()) {
    BreakWorld(levelled->world);
    return done;
  }
  LogInfo("world ", world.generation, ": rank ", world.rank, " of ",
          world.size(), ", step ", replica_.step(),
          levelled->bytes > 0
              ? absl::StrCat(", state of rank ", levelled->donor)
              : "");
  trainer_.EnterWorld(std::move(communicator), UsualRecords());
  rounds_ = 0;
  UpdateStepping();
  reported_step_ = level_step_ = replica_.step();
  if (world.rank == 0) SendLevel(donor);
  done.entered = true;
  return done;
}

absl::StatusOr<elastic::Levelled> TrainingSession::BringLevel(
    collective::Communicator& communicator, elastic::LoadReport& report) {
  elastic::MemberState state;
  state.has_state = has_state_;
  state.lineage = lineage_;
  state.step = replica_.step();
  state.layout = replica_.LayoutDigest();
  state.spans = replica_.State();
  state.meta = MakeDonorState().SerializeAsString();
  elastic::LevelOptions options;
  options.timeout = options_.load_timeout;
  options.moved = [&](int64_t bytes, int64_t total) {
    report.Tell(environment_.clock().Now(), v1::Loading::MOVING, bytes, total);
  };
  report.Tell(environment_.clock().Now(), v1::Loading::LOADED);
  return elastic::BringLevel(communicator, state, options);
}

// On the same stream as the reports that follow.
void TrainingSession::SendLevel(const v1::DonorState& donor) {
  v1::WorkerMessage message;
  v1::Level& level = *message.mutable_level();
  level.set_generation(world()->generation);
  level.set_step(replica_.step());
  level.set_lineage(lineage_);
  *level.mutable_totals() = donor.totals();
  if (last_round_end_ != absl::InfinitePast()) {
    level.set_pause_seconds(
        absl::ToDoubleSeconds(environment_.clock().Now() - last_round_end_));
  }
  send_(std::move(message));
}

absl::Status TrainingSession::StartCold(const rendezvous::World& world,
                                        elastic::LoadReport& report) {
  // What this worker had trained is not part of the job's history any more,
  // and its data was given back.
  totals_.Clear();
  DropMinibatches(std::numeric_limits<int64_t>::max());
  halt_ = world.evaluating ? Halt::kEvaluation : Halt::kNone;
  halted_ = world.evaluating;
  stop_reason_.clear();
  has_state_ = false;
  if (world.rank != 0) return absl::OkStatus();
  if (!world.restore_from.empty()) {
    // Stop loading for a world that is over: a checkpoint may take minutes.
    const auto progress = [&](int64_t bytes, int64_t total) {
      if (!link_.IsUsable(world.generation)) {
        return absl::AbortedError("overtaken while loading");
      }
      report.Tell(environment_.clock().Now(), v1::Loading::LOADING, bytes,
                  total);
      return absl::OkStatus();
    };
    ELASTICDL_ASSIGN_OR_RETURN(
        checkpoint::Loaded loaded,
        environment_.LoadCheckpoint(world.restore_from, progress));
    ELASTICDL_RETURN_IF_ERROR(replica_.Restore(loaded));
    LogInfo("restored ", world.restore_from, " (step ", replica_.step(), ")");
  } else if (!fresh_) {
    ELASTICDL_RETURN_IF_ERROR(replica_.StartAnew());
  }
  if (replica_.step() != world.cold_step) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job is at step ", world.cold_step, ", but ",
        world.restore_from.empty() ? "fresh weights" : world.restore_from,
        " are of step ", replica_.step()));
  }
  lineage_ = world.generation;
  has_state_ = true;
  fresh_ = false;
  return absl::OkStatus();
}

v1::DonorState TrainingSession::MakeDonorState() const {
  v1::DonorState state;
  state.set_step(replica_.step());
  *state.mutable_totals() = totals_.All();
  state.set_paused(halt_ == Halt::kEvaluation);
  state.set_training_over(halt_ == Halt::kOver);
  state.set_stop_reason(stop_reason_);
  return state;
}

absl::Status TrainingSession::Adopt(const v1::DonorState& donor,
                                    bool received) {
  const int64_t counted = totals_.Of(options_.worker_id);
  for (const v1::RecordTotal& total : donor.totals()) {
    if (total.worker_id() != options_.worker_id) continue;
    if (total.records() < counted) {
      return absl::InternalError(absl::StrCat("the donor has ", total.records(),
                                              " records of this worker, which "
                                              "has counted ",
                                              counted));
    }
    // The interrupted step was completed by the donor, so the minibatches that
    // this worker put into it are in the model.
    DropMinibatches(total.records() - counted);
  }
  has_state_ = true;
  fresh_ = false;
  idle_ = false;
  halt_ = donor.training_over() ? Halt::kOver
          : donor.paused()      ? Halt::kEvaluation
                                : Halt::kNone;
  halted_ = halt_ != Halt::kNone;
  stop_reason_ = donor.stop_reason();
  settled_step_ = replica_.step();
  return absl::OkStatus();
}

void TrainingSession::BreakWorld(const absl::Status& status) {
  trainer_.LeaveWorld();
  link_.Drop("the world is broken here");
  if (world() == nullptr) return;
  const int64_t generation = world()->generation;
  if (!loop_.Failed(generation)) return;
  LogInfo("world ", generation, " is broken: ", status.message());
  send_(rendezvous::MakeWorldFailed(generation, status));
}

// ---- rounds ----

absl::StatusOr<WorkDone> TrainingSession::DoRound(double learning_rate) {
  WorkDone done;
  elastic::MemberWord word;
  word.switch_seen = loop_.switch_seen();
  word.stop = !stop_reason_.empty();
  word.evaluate = want_evaluation_;
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<WeightedBatch> batches,
                             TakeBatches(word));
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.step"));
  const absl::StatusOr<Round> round =
      trainer_.Run(batches, word, learning_rate);
  if (!round.ok()) {
    if (batches.empty()) return round.status();
    const Minibatch& first = *pending_.front().minibatch;
    return Annotate(
        round.status(),
        absl::StrCat("training on records ", first.begin(), " to ", first.end(),
                     " of ", first.task().range().shard()));
  }
  if (!round->world.ok()) {
    BreakWorld(round->world);
    return done;
  }
  last_learning_rate_ = learning_rate;
  FinishRound(*round, batches.size(), done);
  return done;
}

absl::StatusOr<std::vector<WeightedBatch>> TrainingSession::TakeBatches(
    elastic::MemberWord& word) {
  std::vector<WeightedBatch> batches;
  if (!WantsData()) return batches;
  const size_t share = std::min(Share(), pending_.size());
  for (size_t i = 0; i < share; ++i) {
    Pending& next = pending_[i];
    if (!next.batch.has_value()) {
      const elastic::Watchdog::Watch watch(options_.watchdog, "feed",
                                           replica_.step() + 1);
      const trace::ScopedKind timed(replica_.step_clock(),
                                    trace::Kind::kFeedWait);
      absl::StatusOr<Batch> batch = next.minibatch->Take();
      ELASTICDL_RETURN_IF_ERROR(batch.status());
      next.batch = *std::move(batch);
    }
    batches.push_back({&*next.batch, next.minibatch->records()});
    // Who still has tasks to read needs no more yet.
    word.report_wanted |=
        next.minibatch->last_of_task() && undelivered_.load() <= 1;
  }
  return batches;
}

void TrainingSession::FinishRound(const Round& round, size_t used,
                                  WorkDone& done) {
  const elastic::RoundSummary& summary = round.summary;
  ++rounds_;
  const bool alone = world()->size() == 1;
  // A member that takes part in this round has completed the one before. So
  // the step before is settled: no change of worlds can lose it. A lone worker
  // needs nobody's confirmation.
  if (!alone || !round.stepped) {
    settled_step_ = replica_.step() - (round.stepped ? 1 : 0);
  } else {
    settled_step_ = replica_.step();
  }
  totals_.AddRound(summary.records, settled_step_ == replica_.step());
  for (size_t i = 0; i < used; ++i) {
    done.records += pending_.front().minibatch->records();
    pending_.pop_front();
    released();
  }
  done.stepped = round.stepped;
  done.loss = summary.mean_loss;
  if (round.stepped) last_loss_ = summary.mean_loss;
  const bool was_due = report_soon_ || reported_step_ == level_step_;
  report_soon_ = summary.report_wanted && !alone;
  last_round_end_ = environment_.clock().Now();
  if (was_due || (summary.report_wanted && alone) ||
      last_round_end_ - last_report_ >= kProgressInterval) {
    Report();
  }
  if (summary.stop && halt_ != Halt::kOver) {
    if (stop_reason_.empty()) stop_reason_ = "the callback of another worker";
    AskHalt(Halt::kOver);
  } else if (summary.evaluate && halt_ == Halt::kNone) {
    AskHalt(Halt::kEvaluation);
  }
  if (summary.evaluate) want_evaluation_ = false;
  if (halt_ != Halt::kNone && settled_step_ == replica_.step()) {
    halted_ = done.halted = true;
    Report();
  } else if (!round.stepped && halt_ == Halt::kNone) {
    SendIdle();
  }
  UpdateStepping();
  loop_.RoundDone(summary.switch_seen);
  if (loop_.world() == nullptr) trainer_.LeaveWorld();
}

void TrainingSession::SendIdle() {
  idle_ = true;
  Report();
  if (!is_reporter()) return;
  v1::WorkerMessage message;
  message.mutable_idle()->set_generation(world()->generation);
  send_(std::move(message));
}

void TrainingSession::Report() {
  if (!is_reporter() || reported_step_ == settled_step_) return;
  v1::WorkerMessage message;
  v1::Progress& progress = *message.mutable_progress();
  progress.set_generation(world()->generation);
  progress.set_step(settled_step_);
  progress.set_loss(last_loss_);
  progress.set_learning_rate(last_learning_rate_);
  *progress.mutable_totals() = totals_.Settled();
  reported_step_ = settled_step_;
  last_report_ = environment_.clock().Now();
  send_(std::move(message));
}

void TrainingSession::DropMinibatches(int64_t records) {
  while (records > 0 && !pending_.empty()) {
    records -= pending_.front().minibatch->records();
    pending_.pop_front();
    released();
  }
}

}  // namespace elasticdl::worker
