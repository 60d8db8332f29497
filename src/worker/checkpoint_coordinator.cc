#include "checkpoint_coordinator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {

v1::WorkerMessage MakeCheckpointDone(int64_t step, int64_t lineage,
                                     const absl::StatusOr<std::string>& path,
                                     absl::Duration took) {
  v1::WorkerMessage message;
  v1::CheckpointDone& done = *message.mutable_checkpoint_done();
  done.set_step(step);
  done.set_lineage(lineage);
  done.set_seconds(absl::ToDoubleSeconds(took));
  if (path.ok()) {
    done.set_path(*path);
  } else {
    done.set_error(std::string(path.status().message()));
  }
  return message;
}

CheckpointCoordinator::CheckpointCoordinator(
    const Deps& deps, std::unique_ptr<checkpoint::Saver> saver)
    : deps_(deps),
      saver_(std::move(saver)),
      live_rule_(saver_ == nullptr ? checkpoint::Saver::LiveRule()
                                   : saver_->live_rule()),
      saves_live_(deps_.replica.CanViewLive() &&
                  deps_.replica.StateBytes() >= live_rule_.least_bytes),
      live_options_(MakeLiveOptions()) {}

checkpoint::LiveOptions CheckpointCoordinator::MakeLiveOptions() {
  checkpoint::LiveOptions options = live_rule_.options;
  if (!saves_live_) return options;
  if (!deps_.replica.on_cpu()) {
    // Training does not change what is read. What does (a joiner needs the
    // state) is rare, and must not wait for a disk.
    options.most_aside_bytes = std::numeric_limits<size_t>::max();
    return options;
  }
  // More than this part of the state would be a large part of the memory.
  constexpr size_t kRoomPart = 16;
  const auto state = static_cast<size_t>(deps_.replica.StateBytes());
  options.room = std::make_shared<checkpoint::AsideRoom>(
      std::min(options.most_aside_bytes, state / kRoomPart));
  return options;
}

void CheckpointCoordinator::OnEntered(const rendezvous::World& world) {
  // Nobody confirmed the step of the copy, so the new world may have started
  // from an earlier one.
  if (unsettled_.has_value()) last_step_ = -1;
  unsettled_.reset();
  last_step_ =
      world.cold ? world.saved_step : std::max(last_step_, world.saved_step);
}

absl::Status CheckpointCoordinator::OnStep() {
  return deps_.session.is_reporter() && Due() ? Begin() : absl::OkStatus();
}

void CheckpointCoordinator::OnRound() {
  if (unsettled_.has_value() &&
      deps_.session.settled_step() == unsettled_step_) {
    AskLedger();
  }
}

void CheckpointCoordinator::OnMasterBack() {
  // The new master does not know the requests, so no answer will come. Saves
  // that the saver has already are complete and go on.
  unsettled_.reset();
  waiting_.clear();
  last_step_ = -1;
}

bool CheckpointCoordinator::Due() const {
  if (saver_ == nullptr || deps_.interval <= 0) return false;
  // What is not copied is read now or not at all.
  if (saves_live_ && saves_under_way_ > 0) return false;
  // Not "a multiple of the interval": the step that was due may have been lost
  // in a change of worlds.
  return deps_.replica.step() / deps_.interval >
         std::max<int64_t>(0, last_step_) / deps_.interval;
}

absl::Status CheckpointCoordinator::SaveThis() {
  return saver_ != nullptr && last_step_ != deps_.replica.step()
             ? Begin()
             : absl::OkStatus();
}

absl::Status CheckpointCoordinator::Begin() {
  unsettled_step_ = last_step_ = deps_.replica.step();
  const trace::ScopedKind timed(deps_.replica.step_clock(),
                                trace::Kind::kCheckpointCopy);
  unsettled_ = Taken();
  unsettled_->lineage = deps_.session.lineage();
  if (saves_live_) {
    ELASTICDL_RETURN_IF_ERROR(BeginLive(*unsettled_));
  } else {
    // The copy is the pause of training; writing goes on beside it.
    ELASTICDL_ASSIGN_OR_RETURN(const checkpoint::Snapshot view,
                               deps_.replica.View());
    unsettled_->copy = checkpoint::OwnedSnapshot::Copy(view);
    unsettled_->copy->snapshot.lineage.generation = unsettled_->lineage;
  }
  OnRound();
  return absl::OkStatus();
}

absl::Status CheckpointCoordinator::BeginLive(Taken& taken) {
  ELASTICDL_ASSIGN_OR_RETURN(Replica::LiveView view,
                             deps_.replica.ViewLive(live_options_));
  view.snapshot.snapshot.lineage.generation = taken.lineage;
  taken.promise.emplace();
  view.snapshot.snapshot.late = taken.promise->late();
  live_step_ = deps_.replica.step();
  {
    MutexLock lock(mu_);
    live_ = std::move(view.arrays);
  }
  Submit(live_step_, std::move(view.snapshot));
  return absl::OkStatus();
}

void CheckpointCoordinator::OnSaveDone() {
  --saves_under_way_;
  std::shared_ptr<checkpoint::LiveArrays> live;
  {
    MutexLock lock(mu_);
    if (live_ == nullptr || !live_->finished()) return;
    live = std::move(live_);
  }
  const absl::Status given_up = live->given_up();
  if (given_up.ok()) {
    LogInfo("the checkpoint of step ", live_step_, " held training up for ",
            absl::FormatDuration(live->waited()));
    return;
  }
  LogInfo("the checkpoint of step ", live_step_,
          " was given up: ", given_up.message());
  // It is due still.
  if (last_step_ == live_step_) last_step_ = -1;
}

void CheckpointCoordinator::HurryUp(const std::string& reason) {
  std::shared_ptr<checkpoint::LiveArrays> live;
  {
    MutexLock lock(mu_);
    live = live_;
  }
  if (live != nullptr) live->GiveUpIfWaiting(reason);
}

void CheckpointCoordinator::AskLedger() {
  // That was this worker's last round; the others continue in a world without
  // it, and their rank 0 reports the step.
  if (deps_.session.world() == nullptr) {
    unsettled_.reset();
    last_step_ = -1;
    return;
  }
  // The master answers with the ledger of the last report.
  deps_.session.Report();
  v1::WorkerMessage message;
  v1::CheckpointBegin& begin = *message.mutable_checkpoint_begin();
  begin.set_step(unsettled_step_);
  begin.set_lineage(unsettled_->lineage);
  waiting_[unsettled_step_] = *std::move(unsettled_);
  unsettled_.reset();
  asked_generation_ = deps_.session.world()->generation;
  deps_.send(std::move(message));
}

bool CheckpointCoordinator::OnLedger(const v1::LedgerReply& reply) {
  const auto found = waiting_.find(reply.step());
  if (found == waiting_.end()) return true;
  Taken taken = std::move(found->second);
  waiting_.erase(found);
  if (reply.has_ledger()) {
    if (taken.promise.has_value()) {
      taken.promise->Keep({reply.ledger(), reply.run()});
      return true;
    }
    taken.copy->snapshot.ledger = reply.ledger();
    taken.copy->snapshot.lineage.run = reply.run();
    Submit(reply.step(), *std::move(taken.copy));
    return true;
  }
  // The master's ledger has moved on or was rolled back, so it has no ledger
  // that belongs to this copy.
  LogInfo("the copy of step ", reply.step(), " is dropped: its world ended");
  last_step_ = -1;
  const rendezvous::World* world = deps_.session.world();
  return world == nullptr || world->generation == asked_generation_;
}

void CheckpointCoordinator::Submit(int64_t step,
                                   checkpoint::OwnedSnapshot snapshot) {
  ++saves_under_way_;
  const int64_t lineage = snapshot.snapshot.lineage.generation;
  saver_->Submit(
      std::move(snapshot),
      [&events = deps_.events, send = deps_.send, step, lineage,
       &clock = deps_.clock, start = deps_.clock.Now(),
       recorder = deps_.replica.step_clock().recorder(),
       begin =
           trace::NowNanoseconds()](const absl::StatusOr<std::string>& path) {
        if (recorder != nullptr) {
          recorder->Add({trace::Kind::kCheckpointSave, begin,
                         trace::NowNanoseconds(), step});
        }
        const absl::Cleanup over = [&events] {
          events.PushKind(Event::Kind::kSaveDone);
        };
        if (absl::IsCancelled(path.status())) {
          LogDebug("checkpoint of step ", step, ": ", path.status().message());
          return;
        }
        send(MakeCheckpointDone(step, lineage, path, clock.Now() - start));
      });
}

void CheckpointCoordinator::Flush() {
  if (saver_ == nullptr) return;
  // Nobody will say what their ledgers are.
  unsettled_.reset();
  waiting_.clear();
  const absl::Status status = saver_->Flush(kSaveTimeout);
  if (!status.ok()) LogError("saving the last checkpoint: ", status.message());
}

}  // namespace elasticdl::worker
