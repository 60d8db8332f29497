// What the master does with pods: carries out the pod manager's decisions,
// tells of their ends, scales.

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/limits.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"
#include "last_error.h"
#include "master_impl.h"

namespace elasticdl::master {
namespace {

// More servers on one machine are a typing error. Tests and trials use more
// than there are cores.
constexpr int64_t kLocalServers = 16;
constexpr int64_t kLocalServersPerCore = 8;
// Of a server's memory limit, when there are to be fewer servers: from here on
// servers slow pushes down, and the model grows while buckets move.
constexpr double kUsableMemory = 0.9;

}  // namespace

// Called on the status page's threads: reads only what is constant or
// thread-safe.
absl::Status MasterImpl::CheckScale(const ScaleRequest& request) const {
  if (request.num_servers.has_value()) {
    ELASTICDL_RETURN_IF_ERROR(CheckServers(*request.num_servers));
  }
  return request.num_workers.has_value() ? CheckWorkers(*request.num_workers)
                                         : absl::OkStatus();
}

absl::Status MasterImpl::CheckServers(int64_t num_servers) const {
  if (options_.num_ps_pods == 0) {
    return absl::FailedPreconditionError(
        "the job has no parameter servers (--distribution_strategy="
        "ParameterServerStrategy)");
  }
  if (options_.job.ps_backup() && num_servers < 2) {
    return absl::OutOfRangeError(
        "num_ps_pods must be at least 2 in a job with --ps_backup=1: a "
        "server's backup is another server");
  }
  if (num_servers < 1 || num_servers > kMaxParameterServers) {
    return absl::OutOfRangeError(absl::StrCat(
        "num_ps_pods must be at least 1 and at most ", kMaxParameterServers));
  }
  const auto why_not =
      server_memory_.WhyNot(static_cast<int>(num_servers), kUsableMemory);
  if (why_not.has_value()) return absl::FailedPreconditionError(*why_not);
  const auto unknown = server_memory_.WhyUnknown(static_cast<int>(num_servers));
  if (unknown.has_value()) return absl::FailedPreconditionError(*unknown);
  // They would all start at once, on this machine.
  const bool here = options_.start_pods && !options_.cluster.has_value() &&
                    !options_.slurm.has_value();
  const int64_t most = std::max<int64_t>(
      {kLocalServers,
       kLocalServersPerCore * std::thread::hardware_concurrency(),
       options_.num_ps_pods});
  if (here && num_servers > most) {
    return absl::OutOfRangeError(absl::StrCat(
        "num_ps_pods must be at most ", most, " in a job on this machine (",
        kLocalServersPerCore, " for each core, or ", kLocalServers, ")"));
  }
  return absl::OkStatus();
}

absl::Status MasterImpl::CheckWorkers(int64_t num_workers) const {
  if (!options_.start_pods) {
    return absl::FailedPreconditionError(
        "the workers of this job are started by hand: start or stop them");
  }
  if (options_.job.distribution_strategy() == "Local") {
    return absl::FailedPreconditionError(
        "the Local strategy trains with one worker");
  }
  const int64_t most = options_.max_workers > 0
                           ? options_.max_workers
                           : std::numeric_limits<int64_t>::max();
  if (num_workers < std::max<int64_t>(1, options_.min_workers) ||
      num_workers > most) {
    return absl::OutOfRangeError(
        absl::StrCat("num_workers must be at least ",
                     std::max<int64_t>(1, options_.min_workers),
                     options_.max_workers > 0
                         ? absl::StrCat(" and at most ", options_.max_workers,
                                        " (--max_workers)")
                         : ""));
  }
  return absl::OkStatus();
}

void MasterImpl::Scale(absl::Time now, const ScaleRequest& request) {
  if (controller_->ending()) return;
  const int servers = controller_->server_target();
  if (request.num_servers.has_value() && *request.num_servers != servers) {
    controller_->ScaleServers(now, static_cast<int>(*request.num_servers));
    reporter_->ScalingServers(servers, *request.num_servers);
  }
  if (request.num_workers.has_value()) {
    ScaleWorkers(now, *request.num_workers);
  }
}

// New servers are needed before buckets move, old ones until they have moved.
void MasterImpl::FollowServers(absl::Time now) {
  if (controller_->ending()) return;
  const int before = servers_->count();
  servers_->SetCount(now, controller_->num_servers());
  server_memory_.SetCount(servers_->count());
  if (pods_ == nullptr || servers_->count() == before) return;
  const auto decisions = pods_->SetTarget(servers_->count(), now, PodType::kPs);
  if (decisions.ok()) Execute(*decisions);
}

void MasterImpl::ScaleWorkers(absl::Time now, int64_t num_workers) {
  const auto decisions = pods_->SetTarget(num_workers, now);
  if (!decisions.ok()) {
    reporter_->OnMessage(absl::StrCat("scaling to ",
                                      Count(num_workers, "worker"), ": ",
                                      decisions.status().message()));
    return;
  }
  num_workers_ = num_workers;
  reporter_->Scaled(num_workers);
  if (journal_ != nullptr) {
    v1::JournalRecord record;
    record.set_target(num_workers);
    Record(record);
  }
  for (const PodDecision& decision : *decisions) {
    if (decision.kind != PodDecision::Kind::kDelete) continue;
    controller_->NoteRemoved(decision.id, "scaled away");
  }
  Execute(*decisions);
}

void MasterImpl::CheckPods(absl::Time now) {
  if (pods_ == nullptr || controller_->ending()) return;
  if (!cannot_start_.empty()) return controller_->Fail(now, cannot_start_);
  const JobOutcome& outcome = pods_->outcome();
  if (outcome.state == JobState::kFailed) {
    controller_->Fail(now, outcome.reason);
  } else if (outcome.state == JobState::kSucceeded) {
    controller_->Fail(now, "all workers have ended, but there is work left");
  }
}

// What is due: pods to create, and those that have not attached in time.
void MasterImpl::ReplaceLate(absl::Time now) {
  const auto decisions = pods_->OnTimer(now, [this](PodType type, int64_t id) {
    return type == PodType::kPs ? servers_->IsAttached(static_cast<int>(id))
                                : controller_->IsAttached(id);
  });
  const PodDecision* late = nullptr;
  int64_t count = 0;
  for (const PodDecision& decision : decisions) {
    if (decision.kind != PodDecision::Kind::kDelete) continue;
    late = &decision;
    ++count;
  }
  // Hundreds may be late together.
  if (count > 0) {
    reporter_->OnMessage(absl::StrCat(
        late->name, count > 1 ? absl::StrCat(" and ", count - 1, " more") : "",
        ": ", late->reason, "; replaced"));
  }
  Execute(decisions);
}

void MasterImpl::NoteKilled(const PodDecision& ended) {
  // In a cluster a job waits as long as it takes.
  if (options_.cluster.has_value() || options_.slurm.has_value()) return;
  const v1::JobType type = options_.job.job_type();
  const bool trains =
      type == v1::TRAINING_ONLY || type == v1::TRAINING_WITH_EVALUATION;
  trained_ |= controller_->progress().step > first_step_;
  // What fails by itself is limited by --relaunch_on_worker_failure.
  if (!trains || trained_ || ended.type != PodType::kWorker || ended.asked ||
      ended.process_failure ||
      !start_watch_.OnWorkerKilled(Clock::Real().Now(), num_workers_)) {
    return;
  }
  cannot_start_ = absl::StrCat(
      "no step was trained: ", start_watch_.killed(),
      " workers were lost before that, the last one with the reason: ",
      ended.reason, "; ", controller_->num_ready_workers(), " of ",
      num_workers_, " are ready. ", num_workers_,
      " may be too many for the cores (",
      std::max(1U, std::thread::hardware_concurrency()),
      ") and the memory of this machine: start fewer (--num_workers), or give "
      "them more time (--worker_start_timeout, now ",
      absl::FormatDuration(options_.worker_start_timeout), ")");
}

// A cluster restarts containers in their pods; what hangs there is for the
// user's liveness probes to find.
void MasterImpl::ReplaceHangingServers(absl::Time now) {
  for (const ServerStreams::Hanging& hanging : servers_->TakeHanging(now)) {
    if (pods_ == nullptr || options_.cluster.has_value() ||
        controller_->ending()) {
      continue;
    }
    // Its successor may be reading the log, however long that takes.
    const std::vector<PodInfo> pods = pods_->pods();
    const bool same =
        std::any_of(pods.begin(), pods.end(), [&](const PodInfo& pod) {
          return pod.type == PodType::kPs && pod.id == hanging.server &&
                 pod.pid == hanging.pid;
        });
    if (!same) continue;
    reporter_->OnMessage(
        absl::StrCat("server ", hanging.server, " hangs and is replaced"));
    auto decisions =
        pods_->Replace(hanging.server, "does not answer", now, PodType::kPs);
    if (decisions.ok()) Execute(*decisions);
  }
}

void MasterImpl::OnPodEvent(absl::Time now, PodEvent event) {
  const std::optional<PodIdentity> who = pods_->Find(event.name);
  // A worker tells its master what is wrong; a server that cannot start has
  // only its log. In a cluster the event has the last words.
  if (pod_ == nullptr && event.exit_code > 0 && who.has_value() &&
      who->type == PodType::kPs && event.message.empty()) {
    event.message = LastErrorIn(jobdir_.LogFile(event.name));
  }
  // A cluster may say it again.
  if (event.phase == PodPhase::kRunning && who.has_value() &&
      running_.insert(event.name).second) {
    jobdir_.WritePid(event.name, event.pid).IgnoreError();
    reporter_->PodStarted(event.name, who->type, who->id, event.pid);
  }
  if (IsFinal(event.phase) && who.has_value()) {
    running_.erase(event.name);
    jobdir_.RemovePid(event.name);
    if (who->type == PodType::kWorker) OnWorkerPodEnded(now, who->id, event);
  }
  Execute(pods_->OnPodEvent(event, now));
}

// Before the pod manager hears of it: if the crash is the fault of a task, it
// does not count against the worker. A failure of its GPU counts against both:
// a bad record looks the same as a broken GPU, and either must come to an end.
void MasterImpl::OnWorkerPodEnded(absl::Time now, int64_t id,
                                  const PodEvent& event) {
  controller_->OnWorkerEnded(now, id,
                             {IsProcessFailure(event), DescribePodEnd(event)});
  if (controller_->BlamedOnOther(id) && event.exit_code != kWorkerExitDevice) {
    pods_->ForgiveFailure(id);
  }
}

void MasterImpl::Execute(const std::vector<PodDecision>& decisions) {
  for (const PodDecision& decision : decisions) {
    switch (decision.kind) {
      case PodDecision::Kind::kCreate:
        CreatePod(decision);
        break;
      case PodDecision::Kind::kDelete:
        DeletePod(decision);
        break;
      case PodDecision::Kind::kEnded:
        reporter_->PodEnded(decision.name, decision.id, decision.reason,
                            decision.process_failure, decision.asked);
        NoteKilled(decision);
        // Of workers the controller tells it.
        if (decision.type == PodType::kPs && !decision.deleted &&
            !controller_->ending()) {
          reporter_->OnMessage(absl::StrCat("server ", decision.id,
                                            " is lost: ", decision.reason));
        }
        break;
      case PodDecision::Kind::kDelayed:
      case PodDecision::Kind::kGaveUp:
        reporter_->OnMessage(
            absl::StrCat(decision.name, ": ", decision.reason));
        break;
    }
  }
}

void MasterImpl::CreatePod(const PodDecision& decision) {
  const bool worker = decision.type == PodType::kWorker;
  PodSpec spec;
  spec.name = decision.name;
  spec.type = decision.type;
  spec.id = decision.id;
  spec.priority = decision.priority;
  spec.argv = worker ? options_.worker_argv : options_.ps_argv;
  spec.argv.push_back(
      absl::StrCat("--", PodTypeName(decision.type), "_id=", decision.id));
  spec.argv.push_back(absl::StrCat("--master_addr=", worker_master_addr_));
  if (!worker) {
    spec.argv.push_back(absl::StrCat("--ps_log=", options_.ps_log));
  }
  spec.log_file = jobdir_.LogFile(decision.name);
  if (worker && decision.replaces >= 0) {
    reporter_->OnMessage(absl::StrCat("starting worker ", decision.id,
                                      " in place of worker ",
                                      decision.replaces));
  } else if (decision.replaces >= 0) {
    reporter_->OnMessage(
        absl::StrCat("starting server ", decision.id, " again"));
  }
  LogInfo("create ", decision.name, ": ", decision.reason);
  reporter_->PodCreated(decision.name, decision.type, decision.id,
                        decision.replaces, decision.reason);
  const absl::Status status = backend_->Create(spec);
  if (status.ok()) return;
  LogWarning("creating ", decision.name, ": ", status.message());
  Execute(pods_->CreateFailed(decision.name, status, Clock::Real().Now()));
}

void MasterImpl::DeletePod(const PodDecision& decision) {
  // In a cluster a pod that was deleted leaves no log; one that has ended does.
  if (pod_ != nullptr && decision.type == PodType::kPs &&
      controller_->succeeding() && pod_->servers_end_for_good() &&
      servers_->Stop(static_cast<int>(decision.id))) {
    return;
  }
  const absl::Status status = backend_->Delete(decision.name, decision.grace);
  if (!status.ok() && !absl::IsNotFound(status)) {
    LogWarning("deleting ", decision.name, ": ", status.message());
  }
}
}  // namespace elasticdl::master
