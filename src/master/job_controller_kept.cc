// The controller and the states that lost workers have left in memory
// (docs/design/0014-state-that-outlives-its-process.md).
//
//   the last worker with the model is lost       heritage_, no world is formed
//   owners that do not end within a moment       they are killed
//   all owners have ended, or the deadline       the newest state is chosen;
//                                                what is in it is committed
//   it is what the job began with                begin again, nothing is lost
//   a worker is ready                            cold world with Prepare.kept
//   Level                                        the memory is given back
//   no state, or it cannot be used, or heirs     rollback, as without it
//   crash with it (KeptHeirs)
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/log.h"
#include "job_controller.h"

namespace elasticdl::master {

std::vector<int64_t> JobController::Orphans() const {
  std::vector<int64_t> orphans;
  if (options_.kept_states == nullptr) return orphans;
  for (const int64_t id : options_.kept_states->Workers()) {
    if (!registry_.IsReachable(id)) orphans.push_back(id);
  }
  return orphans;
}

void JobController::DropOrphans(std::optional<int64_t> except) {
  for (const int64_t id : Orphans()) {
    if (id != except) options_.kept_states->Drop(id);
  }
}

bool JobController::BeginHeritage(absl::Time now) {
  if (stopping_.has_value() || resumption_.waiting() || tasks_.Finished()) {
    return false;
  }
  // Workers that left in order have saved it.
  if (AllLeaving() && checkpoints_.settled_step() == tasks_.step()) {
    return false;
  }
  // Others that leave are still reachable here.
  if (options_.kept_states == nullptr ||
      options_.kept_states->Workers().empty()) {
    return false;
  }
  heritage_ = Heritage();
  // Who is dying does not take that long, and says why it died. Who hangs
  // does not end by itself.
  heritage_->deadline = now + options_.end_grace / 5;
  return true;
}

bool JobController::WaitForOrphans(absl::Time now) {
  const bool late = now >= heritage_->deadline;
  if (late && heritage_->kills) return false;
  if (late) {
    heritage_->kills = true;
    heritage_->deadline = now + options_.end_grace;
  }
  bool waits = false;
  for (const int64_t id : Orphans()) {
    if (!options_.kept_states->HasEnded(id)) {
      waits = true;
      if (heritage_->kills) {
        port_.KillWorker(id, "hangs, and others need its state");
      }
      continue;
    }
    // Its pod tells in a moment how it ended (KeptHeirs).
    const auto departed = departed_.all().find(id);
    if (departed != departed_.all().end()) {
      waits = waits || !departed->second.loss.has_value();
    }
  }
  return waits;
}

absl::StatusOr<KeptStates::Kept> JobController::NewestKept() const {
  std::optional<KeptStates::Kept> best;
  std::string reason = "no worker has left one";
  for (const int64_t id : Orphans()) {
    if (!options_.kept_states->HasEnded(id)) {
      reason = absl::StrCat("worker ", id, " does not end");
      continue;
    }
    absl::StatusOr<KeptStates::Kept> kept = options_.kept_states->Look(id);
    if (!kept.ok()) {
      reason = absl::StrCat("worker ", id, ": ", kept.status().message());
      continue;
    }
    // One that never became a member has another, or what is settled is newer:
    // both would be errors of ours.
    if (kept->facts.lineage != checkpoints_.lineage() ||
        kept->facts.step < tasks_.step()) {
      reason = absl::StrCat("worker ", id, " has left step ", kept->facts.step,
                            " of lineage ", kept->facts.lineage);
      continue;
    }
    if (!best.has_value() || kept->facts.step > best->facts.step) {
      best = *std::move(kept);
    }
  }
  if (!best.has_value()) return absl::NotFoundError(reason);
  return *std::move(best);
}

void JobController::AdvanceHeritage(absl::Time now) {
  if (!ChoosesHeritage() || WaitForOrphans(now)) return;
  absl::StatusOr<KeptStates::Kept> best = NewestKept();
  if (!best.ok()) {
    return GiveUpHeritage(now, std::string(best.status().message()));
  }
  // It is made or read again as easily. Whoever crashes with it does so because
  // of the model or the data.
  if (best->facts.step == first_ledger_.step() && KnowsRestorePoint()) {
    return EndWithoutHeir(now);
  }
  DropOrphans(best->worker_id);
  google::protobuf::RepeatedPtrField<v1::RecordTotal> totals;
  for (const auto& [worker_id, records] : best->facts.totals) {
    v1::RecordTotal& total = *totals.Add();
    total.set_worker_id(worker_id);
    total.set_records(records);
  }
  const int64_t step = best->facts.step;
  heirs_.OnChosen(best->facts.lineage, step);
  heritage_->chosen = *std::move(best);
  Commit(now, totals, step, world_.last_world().generation());
  // A ledger that does not fit has failed the job.
  if (ending_.has_value()) return;
  departed_.SettleAll();
  FinishDeparted(now);
  if (const std::string why = heirs_.Verdict(); !why.empty()) {
    return GiveUpHeritage(now, why);
  }
  observer_.OnMessage(absl::StrCat("all workers with the model are lost; its ",
                                   "state of step ", step,
                                   " is still in memory"));
  for (const auto& decision : std::exchange(held_back_, {})) {
    SendPrepare(now, decision);
  }
}

void JobController::EndHeritage() {
  heritage_.reset();
  DropOrphans();
}

void JobController::GiveUpHeritage(absl::Time now, const std::string& reason) {
  if (!heritage_.has_value()) return;
  observer_.OnKeptGivenUp(tasks_.step(), reason);
  observer_.OnMessage(
      absl::StrCat("the model's state in memory cannot be used: ", reason));
  EndWithoutHeir(now);
}

void JobController::EndWithoutHeir(absl::Time now) {
  EndHeritage();
  heirs_.Forget();
  cut_back_due_ = true;
  departed_.SettleAll();
  FinishDeparted(now);
}

}  // namespace elasticdl::master
