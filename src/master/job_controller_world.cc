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

void JobController::OnWorldMessage(absl::Time now, const Worker& worker,
                                   const v1::WorkerMessage& message) {
  const bool had_level = membership().HasLevelMember();
  switch (message.message_case()) {
    case v1::WorkerMessage::kOffer:
      Execute(now, had_level,
              membership().Offered(now, worker.id, message.offer().generation(),
                                   message.offer().offer()));
      break;
    case v1::WorkerMessage::kConnected:
      Execute(now, had_level,
              membership().Connected(now, worker.id,
                                     message.connected().generation()));
      break;
    case v1::WorkerMessage::kLoading:
      world_.OnLoading(now, worker.id, message.loading());
      NoteEntered(message.loading().generation());
      // While state is passed on, nobody trains or evaluates.
      if (membership().IsForming()) tasks_.RestartClocks(now);
      break;
    case v1::WorkerMessage::kLevel:
      OnLevel(now, worker, message.level());
      break;
    case v1::WorkerMessage::kCaughtUp:
      OnCaughtUp(now, worker, message.caught_up());
      break;
    case v1::WorkerMessage::kWorldFailed: {
      const v1::WorldFailed& failed = message.world_failed();
      LogInfo("world ", failed.generation(), " failed at worker ", worker.id,
              ": ", failed.reason());
      if (failed.kept_unusable() &&
          failed.generation() == world_.last_generation()) {
        GiveUpHeritage(now, failed.reason());
      }
      if (failed.checkpoint_unusable() &&
          failed.generation() == world_.last_generation()) {
        // Its checkpoint is to blame, not a worker.
        membership().ForgiveBreaks();
        DoubtCheckpoint(now, worker.id, failed.reason());
      }
      if (failed.nccl()) OnNcclFailure(now, failed);
      const int64_t accused = membership().MemberAt(
          failed.generation(),
          failed.has_accused_rank() ? failed.accused_rank() : -1);
      Execute(now, had_level,
              membership().Broken(now, worker.id, failed.generation(), accused,
                                  failed.reason()));
      break;
    }
    case v1::WorkerMessage::kIdle:
      if (HasServers()) {
        if (Worker* idle = registry_.FindById(worker.id)) idle->idle = true;
        break;
      }
      world_.OnIdle(worker.id, message.idle().generation());
      break;
    case v1::WorkerMessage::kSaved:
      Execute(now, had_level,
              membership().Saved(now, worker.id, message.saved().generation()));
      break;
    default:
      break;
  }
}

void JobController::OnNcclFailure(absl::Time now,
                                  const v1::WorldFailed& failed) {
  const NcclVerdict verdict = world_.OnNcclFailure(failed.generation());
  if (verdict == NcclVerdict::kGoOn) return;
  const std::string what = absl::StrCat(
      "NCCL does not work between the workers (", failed.reason(), ")");
  const std::string more = "NCCL_DEBUG=INFO in their environment tells more";
  if (verdict == NcclVerdict::kWithout) {
    observer_.OnMessage(absl::StrCat(what,
                                     "; from now on they add up over their "
                                     "hosts' memory, which is slower. ",
                                     more));
    return;
  }
  Fail(now, absl::StrCat("--collective=nccl: ", what, "; ", more,
                         ", and --collective=auto does without it"));
}

void JobController::OnLevel(absl::Time now, const Worker& worker,
                            const v1::Level& level) {
  NoteEntered(level.generation());
  const Membership::Decisions decisions = membership().Level(
      now, worker.id, level.generation(),
      {level.behind().begin(), level.behind().end()}, level.can_shrink());
  // Stale, or not this worker's to say.
  if (world_.generation() != level.generation()) {
    Execute(now, membership().HasLevelMember(), decisions);
    return;
  }
  checkpoints_.SetLineage(level.lineage());
  heirs_.OnLevel(level.generation());
  unreadable_ = {};
  EndHeritage();
  Commit(now, level.totals(), level.step(), level.generation());
  departed_.SettleAll();
  just_settled_ = true;
  level_pause_ = absl::Seconds(level.pause_seconds());
  Execute(now, /*had_level=*/true, decisions);
  just_settled_ = false;
  FinishDeparted(now);
  if (!heritage_.has_value()) DropOrphans();
}

void JobController::OnCaughtUp(absl::Time now, const Worker& worker,
                               const v1::CaughtUp& caught_up) {
  const bool was_level = membership().IsLevel(worker.id);
  const bool had_level = membership().HasLevelMember();
  const Membership::Decisions decisions =
      membership().CaughtUp(now, worker.id, caught_up.generation());
  if (!was_level && membership().IsLevel(worker.id)) {
    world_.AddLevel(worker.id);
    v1::JournalRecord record;
    *record.mutable_active() = world_.last_world();
    Record(record);
    observer_.OnCaughtUp(worker.id, caught_up.generation());
  }
  Execute(now, had_level, decisions);
}

// Thousands may get it at once: only this one is looked at, unless more could
// follow than that it gets tasks.
void JobController::AdvanceMember(absl::Time now, ConnectionId connection) {
  if (!shards_known_ || resumption_.waiting() || ending_.has_value() ||
      stopping_.has_value() || heritage_.has_value() || tasks_.TrainingDone() ||
      evaluation_.running()) {
    return Advance(now);
  }
  granter_.GrantOne(now, WorldForTasks(), connection);
  WakeIfData();
}

void JobController::Execute(absl::Time now, bool had_level,
                            const Membership::Decisions& decisions) {
  if (ending_.has_value()) return;
  if (had_level && !membership().HasLevelMember() && !BeginHeritage(now)) {
    cut_back_due_ = true;
    departed_.SettleAll();
  }
  for (const MembershipDecision& decision : decisions) Execute(now, decision);
  FinishDeparted(now);
}

void JobController::Execute(absl::Time now,
                            const MembershipDecision& decision) {
  switch (decision.kind) {
    case MembershipDecision::Kind::kPrepare:
      Prepare(now, decision);
      break;
    case MembershipDecision::Kind::kOffers:
    case MembershipDecision::Kind::kSwitch:
    case MembershipDecision::Kind::kDissolve:
      world_.Announce(decision);
      break;
    case MembershipDecision::Kind::kActive: {
      const WorldChange world = world_.Activate(
          decision, level_pause_, tasks_.step(), checkpoints_.lineage());
      v1::JournalRecord record;
      *record.mutable_active() = world_.last_world();
      Record(record);
      observer_.OnWorld(world);
      break;
    }
    case MembershipDecision::Kind::kEvict:
      Evict(now, decision.worker_id, WorkerLoss::kPreempted, decision.reason);
      break;
    case MembershipDecision::Kind::kRelease:
      Release(now, decision.worker_id);
      break;
    case MembershipDecision::Kind::kWaiting:
      // Nobody waits for workers of a job that is being stopped.
      if (!stopping_.has_value()) observer_.OnMessage(decision.reason);
      break;
  }
}

std::string JobController::Activity() const {
  if (stopping_.has_value()) {
    return ending_.has_value() ? "stopping the workers"
                               : "stopping and saving a checkpoint";
  }
  const bool works =
      HasWorld() ? world_.generation() > 0 : registry_.any_ready();
  const auto missing = HasServers() ? servers_->Missing() : std::nullopt;
  if (works && missing.has_value() && !ending_.has_value()) {
    return absl::StrCat("waiting for server ", *missing);
  }
  if (works || ending_.has_value()) return "";
  if (resumption_.waiting()) return "waiting for the workers to come back";
  if (searching_) return "looking for a checkpoint to continue from";
  return world_.Activity(static_cast<size_t>(registry_.num_ready()),
                         registry_.size());
}

void JobController::Prepare(absl::Time now,
                            const MembershipDecision& decision) {
  // A state that no world could begin with so often is given up. Each member
  // that is killed on the way counts, too.
  constexpr int kMostWorlds = 30;
  if (decision.cold && heritage_.has_value() &&
      heritage_->worlds >= kMostWorlds) {
    GiveUpHeritage(now, absl::StrCat(kMostWorlds, " worlds failed with it"));
  }
  // While another state is being chosen, the verdict is about the last one.
  if (const std::string why = heirs_.Verdict();
      decision.cold && !why.empty() && !ChoosesHeritage()) {
    GiveUpHeritage(now, why);
  }
  const bool known =
      !decision.cold || heritage_.has_value() || KnowsRestorePoint();
  if (!cut_back_due_ && !searching_ && !ChoosesHeritage() && known) {
    return SendPrepare(now, decision);
  }
  held_back_.push_back(decision);
  // The ledger may be where the last cut back led, or (a journal that ends in
  // the middle of a step) beyond any checkpoint.
  const std::optional<checkpoint::Version>& base = checkpoints_.base();
  const bool at_base = base.has_value() && base->version == tasks_.step();
  if (!cut_back_due_ && !searching_ && !ChoosesHeritage()) {
    SearchCheckpoint(tasks_.step(), at_base);
  }
}

void JobController::SendPrepare(absl::Time now,
                                const MembershipDecision& decision) {
  v1::JournalRecord record;
  record.set_generation(decision.generation);
  Record(record);
  v1::MasterMessage message;
  v1::Prepare& prepare = *message.mutable_prepare();
  prepare = world_.BeginPrepare(decision);
  std::set<int64_t> members;
  for (const WorldMember& member : decision.members) {
    members.insert(member.worker_id);
  }
  if (decision.cold) {
    committed_totals_.clear();
    prepare.set_restore_from(checkpoints_.base().has_value()
                                 ? checkpoints_.base()->path
                                 : options_.restore_from);
    prepare.set_cold_step(tasks_.step());
    prepare.set_evaluating(evaluation_.running() && !tasks_.TrainingDone());
    if (heritage_.has_value()) {
      // It goes on with the lineage that it has.
      ++heritage_->worlds;
      prepare.set_kept(heritage_->chosen->path);
      for (const int64_t id : members) {
        heirs_.OnPrepared(id, decision.generation);
      }
    } else if (options_.fence) {
      options_.fence({checkpoints_.run(), decision.generation});
    }
    // It may have been held back.
    membership().Announced(now, decision.generation);
  }
  for (const auto& [id, departed] : departed_.all()) {
    if (!departed.settled) prepare.add_unsettled(id);
  }
  for (const WorldMember& member : membership().active_members()) {
    if (members.count(member.worker_id) == 0) {
      prepare.add_unsettled(member.worker_id);
    }
  }
  prepare.set_saved_step(checkpoints_.settled_step());
  port_.Send(registry_.Connections(decision.to), std::move(message));
}

void JobController::Release(absl::Time now, int64_t worker_id) {
  Worker* const worker = registry_.FindById(worker_id);
  if (worker == nullptr) return;
  const std::string reason =
      !worker->removed_reason.empty()
          ? worker->removed_reason
          : absl::StrCat("left (",
                         stopping_.has_value() ? stopping_->reason
                                               : worker->leaving_reason,
                         ")");
  Stop(registry_.ConnectionOf(worker_id), *worker, reason, 0);
  DepartedWorkers::Departed departed;
  departed.settled = !HasWorld() || just_settled_ || cut_back_due_;
  departed.loss = WorkerLoss::kPreempted;
  departed.reason = reason;
  AddDeparted(worker_id, departed);
  // Its stream ends by itself.
  registry_.Release(worker_id);
  if (HasServers()) servers_->OnLeaving(worker_id);
  if (!HasWorld()) FinishDeparted(now);
}

void JobController::NoteRemoved(int64_t worker_id, const std::string& reason) {
  if (Worker* worker = registry_.FindById(worker_id)) {
    worker->removed_reason = reason;
  }
}

void JobController::Evict(absl::Time now, int64_t worker_id, WorkerLoss loss,
                          const std::string& reason) {
  if (registry_.IsReachable(worker_id)) {
    const ConnectionId connection = registry_.ConnectionOf(worker_id);
    port_.Close(connection, absl::FailedPreconditionError(reason));
    registry_.Remove(connection);
  }
  observer_.OnMessage(
      absl::StrCat("worker ", worker_id, " is evicted: ", reason));
  port_.KillWorker(worker_id, reason);
  Depart(now, worker_id, loss, reason);
}

void JobController::EvictCrashed(absl::Time now, int64_t worker_id,
                                 const std::string& reason) {
  Evict(now, worker_id, WorkerLoss::kCrashed, reason);
}

void JobController::WakeIfData() {
  // What is left when training is over early is not for anybody.
  if (tasks_.TrainingDone() || !world_.at_rest()) return;
  const auto& workers = registry_.workers();
  const bool data =
      std::any_of(workers.begin(), workers.end(), [this](const auto& entry) {
        return !entry.second.leaving &&
               tasks_.NumHeld(entry.second.id, v1::TRAINING) > 0;
      });
  if (data) world_.Wake();
}

}  // namespace elasticdl::master
