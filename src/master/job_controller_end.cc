// How a job ends: it is done, it fails, or somebody stops it. The controller
// tells the workers; the job is over when they are gone.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job_controller.h"

namespace elasticdl::master {

void JobController::Fail(absl::Time now, const std::string& reason) {
  if (ending_.has_value()) return;
  // What is taken away together with the job fails first. The next run goes on
  // from what is saved.
  if (stopping_.has_value() && stopping_->suspend) return FinishStop();
  SetEnding({kExitJobFailed, reason});
  for (auto& [connection, worker] : registry_.workers()) {
    Stop(connection, worker, reason, kExitJobFailed);
  }
}

void JobController::StopJob(absl::Time now, const std::string& reason,
                            bool suspend) {
  if (ending_.has_value()) return;
  const bool first = !stopping_.has_value();
  const bool save = first && options_.membership.save_last &&
                    tasks_.step() > first_ledger_.step();
  stopping_ = Stopping{reason, now + kStopGrace, suspend};
  // Those who have the model are on their way back (EndResume).
  if (save && resumption_.waiting()) return;
  if (save && HasServers()) return Advance(now);
  if (!save || !membership().HasLevelMember()) return FinishStop();
  Execute(now, /*had_level=*/true, membership().LeaveAll(now));
}

bool JobController::AllLeaving() const {
  bool some = false;
  for (const auto& [connection, worker] : registry_.workers()) {
    // A worker that starts has nothing to save, one that is removed was asked
    // to leave by this master, and one that was let go is a matter of the past.
    if (!worker.ready || !worker.removed_reason.empty() || worker.stop_sent) {
      continue;
    }
    if (!worker.leaving) return false;
    some = true;
  }
  return some;
}

void JobController::FinishStop() {
  const std::string reason = stopping_->reason;
  suspended_ = stopping_->suspend;
  SetEnding({kExitJobFailed, reason});
  for (auto& [connection, worker] : registry_.workers()) {
    Stop(connection, worker, reason, 0);
  }
}

void JobController::Stop(ConnectionId connection, Worker& worker,
                         const std::string& reason, int exit_code) {
  if (worker.stop_sent) return;
  worker.stop_sent = true;
  v1::MasterMessage message;
  message.mutable_stop()->set_reason(reason);
  message.mutable_stop()->set_exit_code(exit_code);
  port_.Send({connection}, std::move(message));
}

void JobController::SetEnding(const JobResult& result) {
  ending_ = result;
  RecordOutcome();
}

void JobController::RecordOutcome() {
  if (suspended_) return;
  const JobResult result = WithLastCheckpoint(*ending_);
  v1::JournalRecord record;
  record.mutable_outcome()->set_exit_code(result.exit_code);
  record.mutable_outcome()->set_message(result.message);
  Record(record);
}

void JobController::FinishIfDone() {
  if (!tasks_.Finished() || evaluation_.running()) return;
  // A worker that is told to stop cannot read the model any more.
  if (HasServers() && LastCheckpointDue()) return;
  const TaskSummary summary = tasks_.Summary();
  JobResult result;
  result.message = summary.ToString();
  if (!summary.success) result.exit_code = kExitRecordsQuarantined;
  SetEnding(result);
  for (auto& [connection, worker] : registry_.workers()) {
    Stop(connection, worker, "the job is done", 0);
  }
}

std::optional<JobResult> JobController::result() const {
  if (!ending_.has_value() || !registry_.empty()) return std::nullopt;
  // A worker that is told to stop may still have had a save under way.
  JobResult result = WithLastCheckpoint(*ending_);
  if (stopping_.has_value() && IsTraining() &&
      result.exit_code == kExitJobFailed) {
    absl::StrAppend(&result.message, "; ", SavedAtStop());
  }
  if (suspended_) result.exit_code = kExitSuspended;
  return result;
}

JobResult JobController::ResultWithout(const std::string& missing) const {
  JobResult result =
      this->result().value_or(JobResult{kExitJobFailed, missing});
  // What was saved is saved, whoever is still there.
  if (suspended_ && !registry_.empty()) {
    result = {kExitSuspended,
              absl::StrCat(ending_->message, "; ", SavedAtStop())};
  }
  return result;
}

std::string JobController::SavedAtStop() const {
  const std::string& dir = options_.job.checkpoint_dir();
  if (dir.empty()) return "nothing was saved: the job has no --checkpoint_dir";
  if (!checkpoints_.has_saved()) {
    if (!checkpoints_.error().empty()) {
      return absl::StrCat("nothing was saved: ", checkpoints_.error());
    }
    return tasks_.step() > first_ledger_.step()
               ? "nothing was saved"
               : "nothing was saved: no step was trained";
  }
  const int64_t saved = checkpoints_.saved_step();
  return absl::StrCat(
      saved < tasks_.step() ? absl::StrCat("step ", tasks_.step(),
                                           " was not saved, the newest "
                                           "checkpoint is ")
                            : "saved ",
      dir, "/version-", saved,
      suspended_
          ? "; a requeued job continues from there"
          : absl::StrCat("; continue with --checkpoint_dir_for_init=", dir));
}

JobResult JobController::WithLastCheckpoint(JobResult result) const {
  if (result.exit_code == 0 && !checkpoints_.error().empty()) {
    result.exit_code = kExitJobFailed;
    result.message = absl::StrCat("training is done, but its last checkpoint ",
                                  "was not saved: ", checkpoints_.error());
  }
  return result;
}

void JobController::NoteEntered(int64_t generation) {
  if (stopping_.has_value() && membership().IsLastWorld(generation)) {
    stopping_->entered_last_world = true;
  }
}

// The workers of a job that is to stop are waited for until they enter the last
// world (with servers: until one of them saves the model), but not while they
// are not even back.
bool JobController::StopHasDeadline() const {
  if (!stopping_.has_value() || ending_.has_value() || resumption_.waiting()) {
    return false;
  }
  // Without a member that has the model there is nothing to wait for.
  const bool saves =
      stopping_->entered_last_world && membership().HasLevelMember();
  return !saves && !membership().InLastWorld() &&
         !(HasServers() && servers_->IsSaving());
}

}  // namespace elasticdl::master
