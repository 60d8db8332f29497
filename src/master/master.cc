#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "command_job.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/limits.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/swift.h"
#include "event_log.h"
#include "master_impl.h"
#include "prediction_files.h"
#include "ps_logs.h"

namespace elasticdl::master {
namespace {

// How long workers have to end when the job has failed or was stopped; a job
// that is done waits for their last checkpoint.
constexpr absl::Duration kEndGrace = absl::Seconds(20);
constexpr absl::Duration kDoneGrace = absl::Minutes(15);
// How long a server that is away may take to hear that the job is over.
constexpr absl::Duration kStrayGrace = absl::Seconds(5);
// When the journal could not be written anew for want of space.
constexpr absl::Duration kShortenAgain = absl::Seconds(1);

// By itself, or when the account is granted what it lacks.
bool MayStillPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status) ||
         absl::IsAlreadyExists(status);
}

}  // namespace

void MasterImpl::Record(v1::JournalRecord record) {
  record.set_audit_bytes(reporter_ == nullptr ? 0 : reporter_->audit_bytes());
  const absl::Status status = journal_->Append(record);
  if (status.ok() || journal_failed_) return;
  journal_failed_ = true;
  if (reporter_ == nullptr) return;
  reporter_->OnMessage(absl::StrCat(
      "the journal cannot be written: if the master is restarted now, training "
      "continues from the newest checkpoint (",
      status.message(), ")"));
}

// Between events: the lines of all commits are in the audit.
void MasterImpl::ShortenJournal(absl::Time now) {
  if (journal_ == nullptr || !journal_->WantsReplace() ||
      now < next_shortening_) {
    return;
  }
  std::vector<v1::JournalRecord> records = controller_->StateRecords();
  records.emplace_back().set_target(num_workers_);
  for (v1::JournalRecord& record : records) {
    record.set_audit_bytes(reporter_->audit_bytes());
  }
  const absl::Status status = journal_->Replace(records);
  if (!status.ok()) {
    next_shortening_ = now + kShortenAgain;
    return;
  }
  if (std::exchange(journal_failed_, false)) {
    reporter_->OnMessage("the journal is complete again");
  }
}

int MasterImpl::Run() {
  BeSwift();
  absl::Time now = Clock::Real().Now();
  reporter_->JobStarted(num_workers_, controller_->server_target());
  first_step_ = controller_->progress().step;
  if (options_.parent.has_value() && options_.parent->restarts > 0) {
    reporter_->MasterRestarted(options_.parent->restarts,
                               options_.parent->signal);
  }
  if (pods_ != nullptr) Execute(pods_->Start(now));
  while (!Over(now)) {
    std::optional<Task> task = posted_.Pop(NextWake() - now);
    now = Clock::Real().Now();
    // What has been said comes before the timers: this thread may have been
    // held up (by a slow disk under the journal), and nobody is late because of
    // that.
    for (size_t waiting = posted_.size(); task.has_value(); --waiting) {
      (*task)(now);
      if (waiting == 0) break;
      task = posted_.Pop(absl::ZeroDuration());
      now = Clock::Real().Now();
    }
    OnTimers(now);
    FollowServers(now);
    CheckPods(now);
    ShortenJournal(now);
    if (controller_->ending() && !give_up_.has_value()) BeginEnding(now);
  }
  JobResult result =
      controller_->ResultWithout("some workers did not end in time");
  servers_->StopAll();
  ShutDown();
  if (predicts()) {
    const absl::Status cut = CutPredictions(
        options_.job.prediction_output_dir(), controller_->prediction_bytes());
    if (!cut.ok() && result.exit_code == 0) {
      result = {
          kExitJobFailed,
          absl::StrCat("some predictions may be there twice: ", cut.message())};
    }
  }
  // A job that failed or was suspended may continue from them.
  const bool over =
      result.exit_code == 0 || result.exit_code == kExitRecordsQuarantined;
  if (over && !options_.ps_log.empty()) {
    const absl::Status removed =
        RemovePsLogs(options_.ps_log, controller_->job().run());
    if (!removed.ok()) LogWarning("the servers' logs: ", removed.message());
  }
  reporter_->Activity("");
  reporter_->Ledger(controller_->ledger_counts());
  reporter_->Publish(now, controller_->progress(), std::nullopt,
                     controller_->num_ready_workers(), {});
  reporter_->JobEnded(result.exit_code, result.message);
  absl::Status told;
  if (pod_ != nullptr) {
    told = pod_->ReportOutcome(reporter_->state(), result.exit_code,
                               result.message);
    if (!told.ok()) LogWarning("telling the cluster: ", told.message());
  }
  // Last: a pod that is killed meanwhile has told its outcome.
  reporter_->EndPage();
  // A stop is an orderly end: the pod shows as Completed and is not started
  // again. Its notes hold the rest.
  if (pod_ != nullptr && told.ok() && reporter_->state() == "stopped") return 0;
  return result.exit_code;
}

void MasterImpl::OnTimers(absl::Time now) {
  if (controller_->NextTimer() <= now) controller_->OnTimer(now);
  if (pods_ != nullptr && pods_->next_wake() <= now) ReplaceLate(now);
  ReplaceHangingServers(now);
  servers_->OnTimer(now);
  WatchSilence(now);
  // Not after every message: it looks at all workers.
  if (reporter_->due(now)) {
    trained_ |= controller_->progress().step > first_step_;
    reporter_->Activity(controller_->Activity());
    reporter_->Ledger(controller_->ledger_counts());
    reporter_->Tick(now, controller_->progress(),
                    controller_->evaluation_progress(),
                    controller_->num_ready_workers(),
                    pods_ == nullptr ? std::vector<PodInfo>() : pods_->pods());
  }
  reporter_->Draw(now);
}

absl::Time MasterImpl::NextWake() const {
  absl::Time next = std::min({controller_->NextTimer(), reporter_->next_tick(),
                              servers_->next_timer(), silence_.next()});
  if (pods_ != nullptr) next = std::min(next, pods_->next_wake());
  if (give_up_.has_value()) next = std::min(next, *give_up_);
  return next;
}

bool MasterImpl::Over(absl::Time now) {
  if (!give_up_.has_value()) return false;
  if (now >= *give_up_) return true;
  if (!controller_->result().has_value()) return false;
  if (pods_ != nullptr) return pods_->all_gone();
  // A server that was started by hand and is cut off would look for a master
  // for all of --master_timeout. It hears the end when it comes back soon.
  if (options_.job.master_timeout_seconds() == 0 || stops_ > 1 ||
      !servers_->SomeAreAway()) {
    return true;
  }
  if (!std::exchange(awaits_servers_, true)) {
    *give_up_ = std::min(*give_up_, now + kStrayGrace);
  }
  return false;
}

void MasterImpl::OnStop(absl::Time now, const std::string& reason) {
  reporter_->OnMessage(absl::StrCat("stopping (", reason, ")"));
  reporter_->Stopping();
  jobdir_.MarkStopping();
  controller_->StopJob(now, reason);
  // The second time, nobody is asked any more.
  if (++stops_ > 1) give_up_ = now;
}

void MasterImpl::OnSuspend(absl::Time now, const std::string& reason) {
  // Slurm says it more than once, to the workers and to this process.
  if (stops_ > 0 || controller_->ending()) return;
  ++stops_;
  reporter_->OnMessage(absl::StrCat("suspending (", reason, ")"));
  reporter_->Stopping();
  controller_->StopJob(now, reason, /*suspend=*/true);
}

void MasterImpl::BeginEnding(absl::Time now) {
  const bool done = controller_->succeeding();
  give_up_ = now + (done ? kDoneGrace : kEndGrace);
  if (pods_ == nullptr) return;
  const auto attached = [this](int64_t id) {
    return controller_->IsAttached(id);
  };
  Execute(done ? pods_->SetWorkDone(now, attached)
               : pods_->Stop("the job is ending", now));
}

// A process on this host that is killed is lost at once: its stream would stay
// open until the kernel has freed its memory.
void MasterImpl::WatchProcess(ConnectionId connection, const LifeSign& sign) {
  if (sign.id.empty() || sign_of_.count(connection) > 0) return;
  const auto number = watch_.Add(sign, [this, connection, pid = sign.pid] {
    Post([this, connection, pid](absl::Time now) {
      const absl::Status died = absl::UnavailableError("its process died");
      // First: the survivors wait for the word that follows from it.
      OnGone(now, connection, died);
      // They need the cores now. If there are none, the next step waits for its
      // end, and perhaps needs the state that it leaves.
      if (controller_->HasReplica()) LetOthersRun(pid);
      server_->Close(connection, died);
    });
  });
  if (number.ok()) sign_of_[connection] = *number;
}

void MasterImpl::OnGone(absl::Time now, ConnectionId connection,
                        const absl::Status& status) {
  const auto sign = sign_of_.find(connection);
  if (sign != sign_of_.end()) {
    watch_.Remove(sign->second);
    sign_of_.erase(sign);
  }
  silence_.Remove(connection);
  if (servers_->OnClosed(now, connection, status)) return;
  controller_->OnClosed(now, connection, status);
  worker_of_.erase(connection);
  // It may have been the only one that had not announced it.
  SuspendIfAllLeave(now);
}

void MasterImpl::OnHeard(absl::Time now, ConnectionId connection) {
  if (!silence_.OnHeard(now, connection)) return;
  if (const auto who = WhoIs(connection)) reporter_->Heard(who->type, who->id);
}

void MasterImpl::WatchSilence(absl::Time now) {
  const SilenceWatch::Turn turn = silence_.OnTimer(now);
  if (!turn.ask.empty()) {
    v1::MasterMessage message;
    message.mutable_ping();
    server_->Send(turn.ask, std::move(message));
  }
  for (const auto& [connection, silence] : turn.silent) {
    if (const auto who = WhoIs(connection)) {
      reporter_->Silent(who->type, who->id, silence);
    }
  }
}

std::optional<MasterImpl::Who> MasterImpl::WhoIs(
    ConnectionId connection) const {
  if (const auto server = servers_->ServerAt(connection)) {
    return Who{PodType::kPs, *server};
  }
  const auto worker = controller_->WorkerAt(connection);
  if (!worker.has_value()) return std::nullopt;
  return Who{PodType::kWorker, *worker};
}

void MasterImpl::NoteLeaving(absl::Time now, ConnectionId connection) {
  const auto found = worker_of_.find(connection);
  if (pods_ != nullptr && found != worker_of_.end()) {
    pods_->NoteLeaving(found->second);
  }
  SuspendIfAllLeave(now);
}

// Nobody has asked all of them to leave: Slurm has (preemption, --signal).
void MasterImpl::SuspendIfAllLeave(absl::Time now) {
  if (options_.slurm.has_value() && controller_->AllLeaving()) {
    OnSuspend(now, "Slurm ends the allocation");
  }
}

void MasterImpl::ShutDown() {
  if (searcher_ != nullptr) searcher_->Stop();
  if (backend_ != nullptr) backend_->Stop();
  if (server_ != nullptr) server_->Shutdown(absl::Seconds(1));
}
absl::StatusOr<std::unique_ptr<Master>> Master::Create(MasterOptions options) {
  if (!options.job_command.empty()) return CreateCommandJob(std::move(options));
  auto master = std::make_unique<MasterImpl>(std::move(options));
  ELASTICDL_RETURN_IF_ERROR(master->SetUp());
  return master;
}

void RecordRefusedJob(const std::string& job_dir, const std::string& event_log,
                      const absl::Status& why,
                      const std::optional<ClusterOptions>& cluster) {
  const std::string reason(why.message());
  const auto dir = jobdir::JobDir::FromPath(job_dir);
  const auto events = EventLog::Open({dir.EventsFile(), event_log});
  // The reason is told on stderr too; the refusal may be a full disk.
  if (events.ok()) {
    (*events)->JobEnd("failed", reason, kExitJobFailed, /*step=*/0);
  }
  if (!cluster.has_value() || MayStillPass(why)) return;
  auto pod = MasterPod::Attach(PodOptions(*cluster));
  const absl::Status told =
      pod.ok() ? pod->ReportOutcome("failed", kExitJobFailed, reason)
               : pod.status();
  if (!told.ok()) LogWarning("telling the cluster: ", told.message());
}

}  // namespace elasticdl::master
