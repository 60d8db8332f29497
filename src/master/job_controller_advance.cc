// What follows after each event and as time passes: tasks, evaluations, the end
// of the job, timers.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job_controller.h"

namespace elasticdl::master {

void JobController::TellStop() {
  // A rollback may take it back.
  if (tasks_.stop_reason() == told_stop_) return;
  told_stop_ = tasks_.stop_reason();
  if (told_stop_.empty()) return;
  observer_.OnMessage(absl::StrCat("training stops early: ", told_stop_));
}

void JobController::Advance(absl::Time now) {
  TellStop();
  if (ending_.has_value() || !shards_known_ || resumption_.waiting()) return;
  AdvanceHeritage(now);
  if (stopping_.has_value()) {
    const bool saves = HasServers() ? servers_->AdvanceStop(now)
                                    : membership().HasLevelMember();
    if (!saves) FinishStop();
    return;
  }
  if (HasServers()) servers_->Advance(now);
  if (tasks_.TrainingDone() && HasServers()) servers_->SendTrainingDone();
  if (tasks_.TrainingDone() && HasWorld()) world_.SendTrainingDone();
  AdvanceEvaluation(now);
  granter_.Grant(now, WorldForTasks());
  WakeIfData();
  FinishIfDone();
}

bool JobController::AtRest() const {
  if (HasServers()) return servers_->AtRest();
  return !IsTraining() || world_.at_rest();
}

void JobController::AdvanceEvaluation(absl::Time now) {
  if (auto result = evaluation_.TakeResult(now)) {
    blame_.OnEvaluationEnd();
    v1::JournalRecord record;
    record.mutable_task()->set_evaluated(result->version);
    Record(record);
    observer_.OnEvaluation(*result);
    if (!result->status.ok()) {
      Fail(now, absl::StrCat("evaluation of step ", result->version, ": ",
                             result->status.message()));
      return;
    }
    rounds_.OnResult(*result, WorldForEvaluation());
  }
  rounds_.Advance(now, WorldForEvaluation());
}

EvaluationRounds::World JobController::WorldForEvaluation() const {
  EvaluationRounds::World world;
  world.generation = world_.generation();
  world.is_member = [this](int64_t id) {
    return HasServers() || world_.IsMember(id);
  };
  world.at_rest = AtRest();
  world.shared_model = HasServers();
  return world;
}

TaskGranter::World JobController::WorldForTasks() const {
  TaskGranter::World world;
  world.training = HasWorld();
  world.shared_model = HasServers();
  world.size = HasServers() ? static_cast<size_t>(registry_.num_ready())
                            : std::min(world_.size(), membership().num_level());
  world.is_member = [this](int64_t id) {
    return world_.IsMember(id) && membership().IsLevel(id);
  };
  world.at_rest = AtRest();
  world.holds_training = HasServers() && servers_->holds_training();
  world.last_checkpoint_due = LastCheckpointDue();
  return world;
}

bool JobController::TasksStandStill() const {
  return HasServers() && servers_->StandsStill();
}

void JobController::OnTimer(absl::Time now) {
  if (resumption_.deadline() <= now) OnResumeDeadline(now);
  const auto expired = departed_.Expire(now);
  for (const auto& [id, reason] : expired) port_.KillWorker(id, reason);
  if (!expired.empty()) FinishDeparted(now);
  if (StopHasDeadline() && stopping_->deadline <= now) return FinishStop();
  if (MembershipTimer() <= now) {
    const bool had_level = membership().HasLevelMember();
    Execute(now, had_level, membership().OnTimer(now));
  }
  const auto all_overdue =
      TasksStandStill() ? std::vector<OverdueTask>() : tasks_.Expire(now);
  for (const OverdueTask& overdue : all_overdue) {
    // Members of a world wait for each other: which of them hangs is for them
    // to say (Stuck).
    if (overdue.type == v1::TRAINING && world_.size() > 1) continue;
    if (HasServers() && servers_->IsExcused(overdue.worker_id)) {
      tasks_.RestartClock(now, overdue.worker_id);
      continue;
    }
    Evict(now, overdue.worker_id, WorkerLoss::kCrashed,
          absl::StrCat("silent on task ", overdue.task_id, " for ",
                       absl::FormatDuration(overdue.silent), " (limit ",
                       absl::FormatDuration(overdue.limit), ")"));
  }
  if (HasServers()) servers_->OnTimer(now);
  Advance(now);
  TellActivities(now);
}

absl::Time JobController::NextTimer() const {
  // See OnTimer for the tasks of a world.
  const bool watched =
      !TasksStandStill() && (world_.size() <= 1 || evaluation_.running());
  absl::Time next = watched ? tasks_.NextExpiry() : absl::InfiniteFuture();
  next = std::min({next, MembershipTimer(), resumption_.deadline(),
                   departed_.next_deadline(), activities_.next()});
  if (HasServers()) next = std::min(next, servers_->NextTimer());
  if (ChoosesHeritage() && !ending_.has_value())
    next = std::min(next, heritage_->deadline);
  if (StopHasDeadline()) next = std::min(next, stopping_->deadline);
  const bool trains =
      !ending_.has_value() && !stopping_.has_value() && !resumption_.waiting();
  if (trains) next = std::min(next, rounds_.NextAsk());
  if (trains && HasServers()) next = std::min(next, servers_->NextMove());
  return next;
}

// Nobody is late for a world that was not announced yet.
absl::Time JobController::MembershipTimer() const {
  if (ending_.has_value() || searching_ || ChoosesHeritage()) {
    return absl::InfiniteFuture();
  }
  return membership().NextTimer();
}

}  // namespace elasticdl::master
