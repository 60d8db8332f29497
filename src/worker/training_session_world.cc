// TrainingSession: enters worlds and leaves them.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "large_array.h"
#include "training_session.h"

namespace elasticdl::worker {

absl::StatusOr<WorkDone> TrainingSession::EnterWorld() {
  WorkDone done;
  const rendezvous::World world = *loop_.ToEnter();
  LeaveWorld();
  totals_.LeaveWorld();
  loop_.Enter();
  auto communicator = link_.Use(world.generation);
  if (communicator == nullptr) {
    // A newer world replaced this one; its Prepare is in the queue of events.
    loop_.Failed(world.generation);
    return done;
  }
  elastic::LoadReport report(world.generation, options_.load_timeout, send_);
  // Whoever has the model loads nothing, and the others wait for it.
  if (world.cold || !has_state_) {
    report.Tell(environment_.clock().Now(), v1::Loading::LOADING);
  }
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.enter_world"));
  // In a cold world nobody has a model that counts, so rank 0 makes one before
  // it is sent to the others.
  if (world.cold) {
    const absl::Status started = StartCold(world, report);
    // The state may be somewhere else, too, or in an older checkpoint: the
    // master decides.
    const bool kept_unusable = !world.kept.empty() && absl::IsDataLoss(started);
    const bool checkpoint_unusable =
        world.kept.empty() && !world.restore_from.empty() &&
        (absl::IsDataLoss(started) || absl::IsNotFound(started));
    if (absl::IsAborted(started) || kept_unusable || checkpoint_unusable) {
      BreakWorld(started, kept_unusable, checkpoint_unusable);
      return done;
    }
    ELASTICDL_RETURN_IF_ERROR(started);
  }
  // What others give it is written over what it has.
  if (!has_state_) fresh_ = false;
  auto levelled = BringLevel(*communicator, report);
  // What ails this member would ail it in the next world, too.
  if (absl::IsFailedPrecondition(levelled.status()) ||
      IsDeviceFailure(levelled.status()) ||
      IsOutOfDeviceMemory(levelled.status())) {
    return levelled.status();
  }
  if (!levelled.ok()) {
    BreakWorld(levelled.status());
    return done;
  }
  v1::DonorState donor;
  if (!donor.ParseFromString(levelled->meta)) {
    return absl::InternalError(absl::StrCat(
        "rank ", levelled->donor, " sent a state that cannot be understood"));
  }
  lineage_ = levelled->lineage;
  replica_.SetStep(levelled->step);
  catch_up_.EnterWorld(levelled->stream, world.rank,
                       environment_.clock().Now());
  // From here on the state is the donor's, even if the world breaks now: its
  // totals must be taken over with it.
  ELASTICDL_RETURN_IF_ERROR(trainer_.AcceptBuffers());
  ELASTICDL_RETURN_IF_ERROR(Adopt(donor));
  totals_.EnterWorld(donor.totals(), world);
  if (!catch_up_.behind()) PublishKept();
  link_.ForgetFormer();
  if (!levelled->world.ok()) {
    BreakWorld(levelled->world);
    return done;
  }
  LogInfo("world ", world.generation, ": rank ", world.rank, " of ",
          world.size(), ", step ", replica_.step(),
          levelled->bytes > 0
              ? absl::StrCat(", state of rank ", levelled->donor)
              : "",
          catch_up_.behind() ? ", catching up" : "");
  trainer_.EnterWorld(std::move(communicator), UsualRecords());
  rounds_ = 0;
  // On a device a step may still be under way when its round ends.
  confirms_first_ = !levelled->any_whole_only;
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
  state.fetch = [this] { return replica_.FetchState(); };
  state.store = [this] { return replica_.StoreState(); };
  state.overwrite = [this] {
    trainer_.ForgetGradients();
    catch_up_.Forget();
    replica_.GiveUpLive("another member's state replaces it");
  };
  state.meta = MakeDonorState().SerializeAsString();
  // Who waits for an evaluation or for the end has the time, and a cold or last
  // world has nothing else to do.
  state.may_stream = catch_up_.IsLarge() && !world()->cold && !world()->last &&
                     halt_ == Halt::kNone;
  state.whole_only = !replica_.on_cpu();
  state.units = catch_up_.units();
  state.part = catch_up_.part();
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
  for (int rank = 0; rank < world()->size(); ++rank) {
    if (!catch_up_.IsBehind(rank)) continue;
    level.add_behind(world()->members[static_cast<size_t>(rank)]);
  }
  level.set_can_shrink(trainer_.communicator()->can_shrink());
  if (last_round_end_ != absl::InfinitePast()) {
    // What was computed for the next step meanwhile is no pause.
    const absl::Time worked = trainer_.keeps_gradients()
                                  ? std::max(last_round_end_, computed_at_)
                                  : last_round_end_;
    level.set_pause_seconds(
        absl::ToDoubleSeconds(environment_.clock().Now() - worked));
  }
  send_(std::move(message));
}

absl::Status TrainingSession::StartCold(const rendezvous::World& world,
                                        elastic::LoadReport& report) {
  // What this worker had trained is not part of the job's history any more,
  // and its data was given back.
  totals_.Clear();
  trainer_.ForgetGradients();
  catch_up_.Forget();
  DropMinibatches(std::numeric_limits<int64_t>::max());
  halt_ = world.evaluating ? Halt::kEvaluation : Halt::kNone;
  halted_ = world.evaluating;
  stop_reason_.clear();
  has_state_ = false;
  if (world.rank != 0) return absl::OkStatus();
  if (!world.kept.empty()) return StartKept(world);
  if (!world.restore_from.empty()) {
    ELASTICDL_RETURN_IF_ERROR(RestoreCheckpoint(world, report));
  } else if (fresh_) {
    ELASTICDL_RETURN_IF_ERROR(replica_.MakeLateValues());
  } else {
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

namespace {

// Why a checkpoint was not read. The disk of this host may be to blame (a mount
// that is stale or not permitted, too few descriptors), so that others can read
// it: DATA_LOSS, upon which the master looks at it. Not so if it does not fit
// the model, or if the world is over.
absl::Status ReadingError(const absl::Status& error, const absl::Status& placed,
                          bool world_usable) {
  if (!placed.ok() || !world_usable || absl::IsNotFound(error) ||
      absl::IsInvalidArgument(error) || absl::IsInternal(error)) {
    return error;
  }
  return absl::DataLossError(error.message());
}

}  // namespace

absl::Status TrainingSession::RestoreCheckpoint(const rendezvous::World& world,
                                                elastic::LoadReport& report) {
  // Stop loading for a world that is over: a checkpoint may take minutes.
  const auto progress = [&](int64_t bytes, int64_t total) {
    if (!link_.IsUsable(world.generation)) {
      return absl::AbortedError("overtaken while loading");
    }
    report.Tell(environment_.clock().Now(), v1::Loading::LOADING, bytes, total);
    return absl::OkStatus();
  };
  checkpoint::LoadOptions load;
  load.progress = progress;
  absl::Status placed;
  load.place = [&](checkpoint::Loaded& loaded) {
    // The weights are overwritten, whether it succeeds or not.
    fresh_ = false;
    placed = replica_.PlaceCheckpoint(loaded);
    return placed;
  };
  const absl::Time begin = environment_.clock().Now();
  int64_t bytes = 0;
  {
    absl::StatusOr<checkpoint::Loaded> loaded =
        environment_.LoadCheckpoint(world.restore_from, load);
    if (!loaded.ok()) {
      return ReadingError(loaded.status(), placed,
                          link_.IsUsable(world.generation));
    }
    fresh_ = false;
    bytes = loaded->file_bytes;
    ELASTICDL_RETURN_IF_ERROR(replica_.Restore(*loaded));
  }
  LogInfo("restored ", world.restore_from, " (step ", replica_.step(), ", ",
          bytes, " bytes) in ",
          absl::FormatDuration(absl::Trunc(environment_.clock().Now() - begin,
                                           absl::Microseconds(100))));
  // Tables that had to be converted are not needed any more.
  TrimMemory();
  return absl::OkStatus();
}

absl::Status TrainingSession::StartKept(const rendezvous::World& world) {
  const auto start = [&]() -> absl::Status {
    ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.restore_kept"));
    ELASTICDL_ASSIGN_OR_RETURN(const keep::KeptReader reader,
                               keep::KeptReader::Open(world.kept));
    const keep::Facts& facts = reader.facts();
    if (facts.step != world.cold_step) {
      return absl::DataLossError(absl::StrCat(
          "it is of step ", facts.step, ", not of step ", world.cold_step));
    }
    ELASTICDL_RETURN_IF_ERROR(replica_.RestoreKept(reader));
    lineage_ = facts.lineage;
    return absl::OkStatus();
  };
  const absl::Status started = start();
  // What it was is lost in any case.
  fresh_ = false;
  if (absl::IsResourceExhausted(started)) {
    // This process has no memory or no descriptor left; the state may be good.
    return absl::AbortedError(absl::StrCat(
        "the state that a lost worker has left: ", started.message()));
  }
  if (!started.ok()) {
    return absl::DataLossError(absl::StrCat(
        "the state that a lost worker has left: ", started.message()));
  }
  LogInfo("took over the state that a lost worker has left (step ",
          replica_.step(), ")");
  // It may have died before it came to a halt, or before anybody heard of it.
  if (!world.evaluating) halt_ = options_.halt_at(replica_.step());
  halted_ = halt_ != Halt::kNone;
  has_state_ = true;
  return absl::OkStatus();
}

void TrainingSession::PlanKept(const elastic::RoundSummary& summary,
                               double learning_rate) {
  keep::KeptState* const kept = replica_.kept();
  if (kept == nullptr) return;
  facts_.step = replica_.step() + 1;
  facts_.lineage = lineage_;
  facts_.learning_rate = learning_rate;
  totals_.List(summary.records, facts_.totals);
  if (!kept->Plan(facts_)) WarnNotKept();
}

void TrainingSession::PublishKept() {
  keep::KeptState* const kept = replica_.kept();
  if (kept == nullptr) return;
  facts_.step = replica_.step();
  facts_.lineage = lineage_;
  facts_.learning_rate = 0;
  totals_.List({}, facts_.totals);
  if (!kept->Publish(facts_)) WarnNotKept();
}

// Once: the world may be smaller again later.
void TrainingSession::WarnNotKept() const {
  LogWarning("the model's state is not kept in memory: it counts the records ",
             "of ", facts_.totals.size(), " workers");
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

absl::Status TrainingSession::Adopt(const v1::DonorState& donor) {
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
  has_state_ = !catch_up_.behind();
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

void TrainingSession::LeaveWorld() {
  trainer_.LeaveWorld();
  catch_up_.LeaveWorld();
}

void TrainingSession::BreakWorld(const absl::Status& status, bool kept_unusable,
                                 bool checkpoint_unusable) {
  LeaveWorld();
  link_.Drop("the world is broken here");
  if (world() == nullptr) return;
  const int64_t generation = world()->generation;
  if (!loop_.Failed(generation)) return;
  // The master knows: its message is on the way to this thread. But not that
  // NCCL was the reason, if its abort took longer than the news of others.
  if (link_.IsOvertaken(generation) && !collective::IsNcclFailure(status)) {
    return;
  }
  LogInfo("world ", generation, " is broken: ", status.message());
  v1::WorkerMessage message = rendezvous::MakeWorldFailed(generation, status);
  message.mutable_world_failed()->set_kept_unusable(kept_unusable);
  message.mutable_world_failed()->set_checkpoint_unusable(checkpoint_unusable);
  send_(std::move(message));
}

}  // namespace elasticdl::worker
