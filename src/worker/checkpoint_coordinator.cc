#include "checkpoint_coordinator.h"

#include <algorithm>
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
  // The copy is the pause of training; writing goes on beside it.
  ELASTICDL_ASSIGN_OR_RETURN(const checkpoint::Snapshot view,
                             deps_.replica.View());
  unsettled_ = checkpoint::OwnedSnapshot::Copy(view);
  unsettled_->snapshot.lineage.generation = deps_.session.lineage();
  OnRound();
  return absl::OkStatus();
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
  begin.set_lineage(unsettled_->snapshot.lineage.generation);
  waiting_[unsettled_step_] = *std::move(unsettled_);
  unsettled_.reset();
  asked_generation_ = deps_.session.world()->generation;
  deps_.send(std::move(message));
}

bool CheckpointCoordinator::OnLedger(const v1::LedgerReply& reply) {
  const auto found = waiting_.find(reply.step());
  if (found == waiting_.end()) return true;
  checkpoint::OwnedSnapshot snapshot = std::move(found->second);
  waiting_.erase(found);
  if (reply.has_ledger()) {
    snapshot.snapshot.ledger = reply.ledger();
    snapshot.snapshot.lineage.run = reply.run();
    Submit(reply.step(), std::move(snapshot));
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
          LogDebug("checkpoint of step ", step,
                   " was overtaken by a newer one");
          return;
        }
        send(MakeCheckpointDone(step, lineage, path, clock.Now() - start));
      });
}

void CheckpointCoordinator::Flush() {
  if (saver_ == nullptr) return;
  const absl::Status status = saver_->Flush(kSaveTimeout);
  if (!status.ok()) LogError("saving the last checkpoint: ", status.message());
}

}  // namespace elasticdl::worker
