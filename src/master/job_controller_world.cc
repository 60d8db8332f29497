// The controller's part in worlds: carries out what the membership decides and
// keeps model and ledger together while worlds change.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/log.h"
#include "job_controller.h"

namespace elasticdl::master {

using rendezvous::Membership;
using rendezvous::MembershipDecision;
using rendezvous::WorldMember;

bool JobController::IsActive(int64_t worker_id) const {
  const int64_t generation = membership_.active_generation();
  return generation > 0 && membership_.CheckActive(worker_id, generation).ok();
}

void JobController::OnWorldMessage(absl::Time now, const WorkerState& worker,
                                   const v1::WorkerMessage& message) {
  const bool had_level = membership_.HasLevelMember();
  switch (message.message_case()) {
    case v1::WorkerMessage::kOffer:
      Execute(now, had_level,
              membership_.Offered(now, worker.id, message.offer().generation(),
                                  message.offer().offer()));
      break;
    case v1::WorkerMessage::kConnected:
      Execute(now, had_level,
              membership_.Connected(now, worker.id,
                                    message.connected().generation()));
      break;
    case v1::WorkerMessage::kLevel:
      OnLevel(now, worker, message.level());
      break;
    case v1::WorkerMessage::kWorldFailed: {
      const v1::WorldFailed& failed = message.world_failed();
      LogInfo("world ", failed.generation(), " failed at worker ", worker.id,
              ": ", failed.reason());
      const int64_t accused = membership_.MemberAt(
          failed.generation(),
          failed.has_accused_rank() ? failed.accused_rank() : -1);
      Execute(now, had_level,
              membership_.Broken(now, worker.id, failed.generation(), accused,
                                 failed.reason()));
      break;
    }
    case v1::WorkerMessage::kIdle:
      if (IsActive(worker.id) &&
          message.idle().generation() == membership_.active_generation()) {
        idle_generation_ = message.idle().generation();
      }
      break;
    case v1::WorkerMessage::kSaved:
      Execute(now, had_level,
              membership_.Saved(now, worker.id, message.saved().generation()));
      break;
    default:
      break;
  }
}

void JobController::OnLevel(absl::Time now, const WorkerState& worker,
                            const v1::Level& level) {
  const Membership::Decisions decisions =
      membership_.Level(now, worker.id, level.generation());
  // Stale, or not this worker's to say.
  if (membership_.active_generation() != level.generation()) {
    Execute(now, membership_.HasLevelMember(), decisions);
    return;
  }
  Commit(now, level.totals(), level.step(), level.generation());
  for (auto& [id, gone] : gone_) gone.settled = true;
  just_settled_ = true;
  level_pause_ = absl::Seconds(level.pause_seconds());
  Execute(now, /*had_level=*/true, decisions);
  just_settled_ = false;
  FinishGone(now);
}

void JobController::Execute(absl::Time now, bool had_level,
                            const Membership::Decisions& decisions) {
  if (ending_.has_value()) return;
  if (had_level && !membership_.HasLevelMember()) {
    cut_back_due_ = true;
    for (auto& [id, gone] : gone_) gone.settled = true;
  }
  for (const MembershipDecision& decision : decisions) Execute(now, decision);
  FinishGone(now);
}

void JobController::Execute(absl::Time now,
                            const MembershipDecision& decision) {
  v1::MasterMessage message;
  switch (decision.kind) {
    case MembershipDecision::Kind::kPrepare:
      if (cut_back_due_) {
        held_back_.push_back(decision);
        return;
      }
      SendPrepare(decision);
      break;
    case MembershipDecision::Kind::kOffers:
      message.mutable_offers()->set_generation(decision.generation);
      for (const std::string& offer : decision.offers) {
        message.mutable_offers()->add_offers(offer);
      }
      SendTo(decision.to, std::move(message));
      break;
    case MembershipDecision::Kind::kSwitch:
      message.mutable_switch_()->set_generation(decision.generation);
      SendTo(decision.to, std::move(message));
      break;
    case MembershipDecision::Kind::kDissolve:
      message.mutable_dissolve()->set_generation(decision.generation);
      SendTo(decision.to, std::move(message));
      break;
    case MembershipDecision::Kind::kActive: {
      WorldChange world;
      world.generation = decision.generation;
      for (const WorldMember& member : decision.members) {
        world.members.push_back(member.worker_id);
      }
      world.cause = decision.reason;
      // The membership knows since when a world was broken; what a switch costs
      // only its members know.
      world.pause = std::max(decision.pause, level_pause_);
      world.step = tasks_.step();
      active_size_ = world.members.size();
      idle_generation_ = 0;
      v1::JournalRecord record;
      record.mutable_active()->set_generation(world.generation);
      record.mutable_active()->mutable_members()->Add(world.members.begin(),
                                                      world.members.end());
      Record(record);
      output_.OnWorld(world);
      break;
    }
    case MembershipDecision::Kind::kEvict:
      Evict(now, decision.worker_id, WorkerLoss::kPreempted, decision.reason);
      break;
    case MembershipDecision::Kind::kRelease:
      Release(now, decision.worker_id);
      break;
    case MembershipDecision::Kind::kWaiting:
      output_.OnMessage(decision.reason);
      break;
  }
}

void JobController::SendPrepare(const MembershipDecision& decision) {
  v1::JournalRecord record;
  record.set_generation(decision.generation);
  Record(record);
  v1::MasterMessage message;
  v1::Prepare& prepare = *message.mutable_prepare();
  prepare.set_generation(decision.generation);
  prepare.set_urgent(decision.urgent);
  prepare.set_cold(decision.cold);
  prepare.set_last(decision.last);
  std::set<int64_t> members;
  for (const WorldMember& member : decision.members) {
    v1::Member& added = *prepare.add_members();
    added.set_worker_id(member.worker_id);
    added.set_host(member.host);
    members.insert(member.worker_id);
  }
  if (decision.cold) {
    committed_totals_.clear();
    prepare.set_restore_from(CheckpointToRestore());
    prepare.set_cold_step(tasks_.step());
    prepare.set_evaluating(evaluation_.running() && !tasks_.TrainingDone());
    // What it is restored from need not be saved again.
    if (!prepare.restore_from().empty()) saved_step_ = tasks_.step();
  }
  for (const auto& [id, gone] : gone_) {
    if (!gone.settled) prepare.add_unsettled(id);
  }
  for (const WorldMember& member : membership_.active_members()) {
    if (members.count(member.worker_id) == 0) {
      prepare.add_unsettled(member.worker_id);
    }
  }
  prepare.set_saved_step(saved_step_);
  SendTo(decision.to, std::move(message));
}

std::string JobController::CheckpointToRestore() const {
  // Of this run, if there is one: its ledger is what the tasks were cut back
  // to.
  if (ledgers_.count(tasks_.step()) != 0) {
    if (const auto path = options_.find_checkpoint(tasks_.step())) return *path;
  }
  return options_.restore_from;
}

void JobController::SendTo(const std::vector<int64_t>& workers,
                           v1::MasterMessage message) {
  std::vector<ConnectionId> connections;
  connections.reserve(workers.size());
  for (const int64_t worker_id : workers) {
    const auto found = connection_of_.find(worker_id);
    if (found != connection_of_.end()) connections.push_back(found->second);
  }
  output_.Send(connections, std::move(message));
}

void JobController::Release(absl::Time now, int64_t worker_id) {
  const auto found = connection_of_.find(worker_id);
  if (found == connection_of_.end()) return;
  WorkerState& worker = workers_.at(found->second);
  const std::string reason = absl::StrCat(
      "left (",
      stopping_.has_value() ? stopping_->reason : worker.leaving_reason, ")");
  Stop(found->second, worker, reason, 0);
  Gone gone;
  gone.settled = !IsTraining() || just_settled_ || cut_back_due_;
  gone.loss = WorkerLoss::kPreempted;
  gone.reason = reason;
  gone_[worker_id] = gone;
  // Its stream ends by itself.
  connection_of_.erase(found);
  if (!IsTraining()) FinishGone(now);
}

void JobController::Evict(absl::Time now, int64_t worker_id, WorkerLoss loss,
                          const std::string& reason) {
  if (const auto found = connection_of_.find(worker_id);
      found != connection_of_.end()) {
    output_.Close(found->second, absl::FailedPreconditionError(reason));
    workers_.erase(found->second);
  }
  output_.OnMessage(
      absl::StrCat("worker ", worker_id, " is evicted: ", reason));
  output_.KillWorker(worker_id, reason);
  Depart(now, worker_id, loss, reason);
}

void JobController::WakeIfData() {
  if (idle_generation_ == 0 ||
      idle_generation_ != membership_.active_generation()) {
    return;
  }
  const bool data =
      std::any_of(workers_.begin(), workers_.end(), [this](const auto& entry) {
        return !entry.second.leaving &&
               tasks_.NumHeld(entry.second.id, v1::TRAINING) > 0;
      });
  if (!data) return;
  v1::MasterMessage message;
  message.mutable_wake()->set_generation(idle_generation_);
  idle_generation_ = 0;
  std::vector<int64_t> members;
  for (const WorldMember& member : membership_.active_members()) {
    members.push_back(member.worker_id);
  }
  SendTo(members, std::move(message));
}

void JobController::SetWorkerLimits(absl::Time now, int64_t min_workers,
                                    int64_t max_workers) {
  const bool had_level = membership_.HasLevelMember();
  Execute(now, had_level, membership_.SetLimits(now, min_workers, max_workers));
}

}  // namespace elasticdl::master
