#include "training_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "histogram.h"

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
      trainer_(replica_, options_.compression, options_.watchdog,
               options_.device_sum_timeout),
      catch_up_({options_.background_join_bytes, options_.join_bandwidth,
                 options_.load_timeout},
                replica_),
      last_report_(environment_.clock().Now()) {
  trainer_.computed = [this] { computed_at_ = environment_.clock().Now(); };
  trainer_.before_update = [this](const elastic::RoundSummary& summary,
                                  double learning_rate) {
    PlanKept(summary, learning_rate);
  };
  if (!replica_.on_cpu()) {
    mover_ = std::make_unique<BatchMover>(replica_.device());
  }
}

bool TrainingSession::Hear(const v1::MasterMessage& message) {
  // At once, not in its turn: the training thread may be waiting for data that
  // will never come.
  if (message.has_no_more_tasks()) no_more_tasks_ = true;
  // Before the sum of the step is aborted: a grace period may be running.
  if (message.has_stop() ||
      (message.has_prepare() && message.prepare().last())) {
    trainer_.ExpectNoMoreRounds();
  }
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
  if (loop_.world() == nullptr) LeaveWorld();
}

void TrainingSession::OnWake(int64_t generation) {
  // A late Wake of an earlier world says nothing about the data of this one.
  if (world() == nullptr || world()->generation != generation) return;
  idle_ = false;
  UpdateStepping();
}

void TrainingSession::AddMinibatch(std::shared_ptr<Minibatch> minibatch) {
  if (minibatch->last_of_task()) undelivered_.fetch_sub(1);
  pending_.push_back({std::move(minibatch), std::nullopt, std::nullopt});
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
  return halt_ == Halt::kNone && taking_data_ && stop_reason_.empty() &&
         !catch_up_.behind();
}

// How many minibatches this member puts into the next round. Those that cannot
// be shared equally go to the members in turn: otherwise, in a world with more
// members than minibatches, some would never train the data that they hold.
size_t TrainingSession::Share() const {
  if (options_.global_batch_size == 0) {
    return static_cast<size_t>(options_.accumulation_steps);
  }
  const int64_t whole = options_.global_batch_size / options_.minibatch_size;
  const int64_t size = catch_up_.NumTrainers(world()->size());
  const int64_t rest = whole % size;
  // The same on all members, because they have done the same rounds.
  const int64_t first = rounds_ * rest % size;
  const int64_t rank = catch_up_.NumTrainersBefore(world()->rank);
  const int64_t place = (rank - first + size) % size;
  return static_cast<size_t>(whole / size + (place < rest ? 1 : 0));
}

int64_t TrainingSession::UsualRecords() const {
  return options_.global_batch_size > 0
             ? options_.global_batch_size
             : options_.minibatch_size * options_.accumulation_steps *
                   world()->size();
}

absl::StatusOr<WorkDone> TrainingSession::Work(double learning_rate) {
  if (loop_.ToEnter() != nullptr) return EnterWorld();
  return DoRound(learning_rate);
}

// ---- rounds ----

absl::StatusOr<WorkDone> TrainingSession::DoRound(double learning_rate) {
  WorkDone done;
  elastic::MemberWord word;
  word.switch_seen = loop_.switch_seen();
  word.stop = !stop_reason_.empty();
  word.evaluate = want_evaluation_;
  word.piece = catch_up_.NextPiece();
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
  if (round->stepped) ELASTICDL_RETURN_IF_ERROR(SendHistograms());
  const absl::StatusOr<bool> confirmed = ConfirmFirst(*round);
  FinishRound(*round, batches.size(), confirmed.value_or(false), done);
  if (!confirmed.ok()) BreakWorld(confirmed.status());
  return done;
}

// Otherwise the first step of a world would be settled only by the second one.
// Whoever waits for the end of an interruption would wait for a step too long.
absl::StatusOr<bool> TrainingSession::ConfirmFirst(const Round& round) {
  // All members must decide alike. After the last round of a world they go on
  // to the next one.
  if (rounds_ > 0 || !round.stepped || world()->size() == 1 ||
      round.summary.switch_seen == world()->size() || !confirms_first_) {
    return false;
  }
  ELASTICDL_RETURN_IF_ERROR(trainer_.communicator()->Barrier(kReduceTimeout));
  return true;
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
      ELASTICDL_RETURN_IF_ERROR(OnDevice("copying a minibatch", [&] {
        Accept(next, *std::move(batch));
        return absl::OkStatus();
      }));
    }
    if (mover_ != nullptr) {
      ELASTICDL_RETURN_IF_ERROR(OnDevice("waiting for a minibatch", [&] {
        mover_->Arrive(*next.moving);
        return absl::OkStatus();
      }));
    }
    batches.push_back({&*next.batch, next.minibatch->records()});
    // Who still has tasks to read needs no more yet.
    word.report_wanted |=
        next.minibatch->last_of_task() && undelivered_.load() <= 1;
  }
  if (mover_ != nullptr) {
    const elastic::Watchdog::Watch watch(options_.watchdog,
                                         "copying minibatches to the device");
    ELASTICDL_RETURN_IF_ERROR(OnDevice("copying minibatches", [&] {
      MoveAhead(share);
      return absl::OkStatus();
    }));
  }
  return batches;
}

void TrainingSession::Accept(Pending& pending, Batch batch) {
  if (mover_ == nullptr) {
    pending.batch = std::move(batch);
    return;
  }
  pending.moving = mover_->Start(std::move(batch));
  pending.batch = pending.moving->batch;
}

void TrainingSession::MoveAhead(size_t share) {
  for (size_t i = share; i < std::min(2 * share, pending_.size()); ++i) {
    Pending& next = pending_[i];
    if (next.batch.has_value()) continue;
    // An error is told when its turn comes.
    absl::StatusOr<Batch> batch = next.minibatch->TakeIfReady();
    if (!batch.ok()) return;
    Accept(next, *std::move(batch));
  }
}

void TrainingSession::FinishRound(const Round& round, size_t used,
                                  bool confirmed, WorkDone& done) {
  const elastic::RoundSummary& summary = round.summary;
  ++rounds_;
  const bool alone = world()->size() == 1;
  // A member that takes part in this round has completed the one before. So
  // the step before is settled: no change of worlds can lose it. A lone worker
  // needs nobody's confirmation.
  if (!(alone || confirmed) || !round.stepped) {
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
  absl::Status passed = PassState(summary);
  done.halted = done.halted && passed.ok();
  UpdateStepping();
  loop_.RoundDone(summary.switch_seen);
  if (loop_.world() == nullptr) LeaveWorld();
  if (!passed.ok()) BreakWorld(passed);
}

// Before the next round overwrites the gradients.
absl::Status TrainingSession::SendHistograms() {
  const int64_t every = options_.histogram_steps;
  if (every <= 0 || replica_.step() % every != 0) return absl::OkStatus();
  // Who is behind has but a part of the model.
  if (!is_reporter() || catch_up_.behind()) return absl::OkStatus();
  const elastic::Watchdog::Watch watch(
      options_.watchdog, "histograms of the model", replica_.step());
  const trace::ScopedKind timed(replica_.step_clock(), trace::Kind::kOther);
  v1::WorkerMessage message;
  absl::Status made = OnDevice("copying the model for histograms", [&] {
    *message.mutable_histograms() = MakeHistograms(replica_);
    return absl::OkStatus();
  });
  if (IsDeviceFailure(made)) return made;
  if (made.ok()) {
    send_(std::move(message));
  } else {
    // No reason to end a job.
    LogWarning("no histograms of step ", replica_.step(), ": ", made.message());
  }
  return absl::OkStatus();
}

// Between two rounds, members that are behind are given a piece of the state.
// It is the same one on all members, and they do it before any of them may
// leave the world.
absl::Status TrainingSession::PassState(const elastic::RoundSummary& summary) {
  // After its last round a world passes nothing on; the next one goes on with
  // it.
  if (!catch_up_.active() || summary.switch_seen == world()->size()) {
    return absl::OkStatus();
  }
  const bool was_behind = catch_up_.behind();
  collective::Communicator& communicator = *trainer_.communicator();
  const bool rests = halted_ || idle_;
  const absl::Status passed =
      rests ? catch_up_.PassRest(communicator)
            : catch_up_.Pass(communicator, summary.piece, environment_.clock());
  if (was_behind) ELASTICDL_RETURN_IF_ERROR(trainer_.AcceptBuffers());
  // Also if what followed for others broke off.
  if (was_behind && !catch_up_.behind()) {
    has_state_ = true;
    PublishKept();
    LogInfo("world ", world()->generation, ": level at step ", replica_.step());
    v1::WorkerMessage message;
    message.mutable_caught_up()->set_generation(world()->generation);
    send_(std::move(message));
  }
  return passed;
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
  if (records > 0) trainer_.ForgetGradients();
  while (records > 0 && !pending_.empty()) {
    records -= pending_.front().minibatch->records();
    pending_.pop_front();
    released();
  }
}

}  // namespace elasticdl::worker
