// The controller and the states that lost workers have left in memory
// (docs/design/0014-state-that-outlives-its-process.md).
//
//   the last worker with the model is lost       heritage_, no world is formed
//   all owners have ended, or the deadline       the newest state is chosen;
//                                                what is in it is committed
//   a worker is ready                            cold world with Prepare.kept
//   Level                                        the memory is given back
//   no state, or it cannot be used               rollback, as without it
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
  heritage_->deadline = now + options_.end_grace;
  return true;
}

void JobController::AdvanceHeritage(absl::Time now) {
  if (!ChoosesHeritage()) return;
  std::optional<KeptStates::Kept> best;
  std::string reason = "no worker has left one";
  const std::vector<int64_t> orphans = Orphans();
  for (const int64_t id : orphans) {
    if (options_.kept_states->HasEnded(id)) continue;
    // Who still runs may still change it.
    if (now < heritage_->deadline) return;
  }
  for (const int64_t id : orphans) {
    if (!options_.kept_states->HasEnded(id)) continue;
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
  if (!best.has_value()) return GiveUpHeritage(now, reason);
  DropOrphans(best->worker_id);
  google::protobuf::RepeatedPtrField<v1::RecordTotal> totals;
  for (const auto& [worker_id, records] : best->facts.totals) {
    v1::RecordTotal& total = *totals.Add();
    total.set_worker_id(worker_id);
    total.set_records(records);
  }
  const int64_t step = best->facts.step;
  heritage_->chosen = std::move(best);
  Commit(now, totals, step, world_.last_world().generation());
  // A ledger that does not fit has failed the job.
  if (ending_.has_value()) return;
  observer_.OnMessage(absl::StrCat("all workers with the model are lost; its ",
                                   "state of step ", step,
                                   " is still in memory"));
  departed_.SettleAll();
  FinishDeparted(now);
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
  EndHeritage();
  observer_.OnMessage(
      absl::StrCat("the model's state in memory cannot be used: ", reason));
  cut_back_due_ = true;
  departed_.SettleAll();
  FinishDeparted(now);
}

}  // namespace elasticdl::master
