// How a master begins: journal, port, pods.

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "job_plan.h"
#include "kube_pod_backend.h"
#include "local_pod_backend.h"
#include "master_impl.h"
#include "prediction_files.h"
#include "ps_logs.h"
#include "slurm_pod_backend.h"

namespace elasticdl::master {
namespace {

// A server has nothing to load before it attaches, and the whole job waits for
// it.
constexpr absl::Duration kServerStartTimeout = absl::Seconds(30);

void DropIfUnwritable(const char* flag, std::string& path) {
  const absl::Status opened = LineWriter::Open(path).status();
  if (opened.ok()) return;
  LogError(flag, " is not written from here on: ", opened.message());
  path.clear();
}

}  // namespace

MasterPod::Options PodOptions(const ClusterOptions& cluster) {
  MasterPod::Options pod;
  pod.namespace_name = cluster.namespace_name;
  pod.pod_name = cluster.pod_name;
  pod.pod_ip = cluster.pod_ip;
  pod.template_dir = cluster.pod_template_dir;
  pod.config.kubeconfig = cluster.kubeconfig;
  pod.config.home = cluster.home;
  pod.config.service_host = cluster.service_host;
  pod.config.service_port = cluster.service_port;
  pod.config.force_kubeconfig = cluster.force_kubeconfig;
  return pod;
}

absl::Status MasterImpl::SetUp() {
  // Only a process on the same host that outlives them can keep their states.
  if (!options_.start_pods || options_.cluster.has_value() ||
      options_.slurm.has_value() || options_.job.num_ps_pods() > 0) {
    options_.job.set_keep_state(false);
  }
  ELASTICDL_ASSIGN_OR_RETURN(JobController::Options plan, PlanJob(options_));
  plan.server_memory = &server_memory_;
  if (options_.job.keep_state()) {
    keeper_ = std::make_unique<StateKeeper>();
    plan.kept_states = keeper_.get();
  }
  if (options_.job.master_timeout_seconds() > 0 || options_.keep_journal) {
    ELASTICDL_RETURN_IF_ERROR(OpenJournal(plan));
  }
  if (plan.replay.empty() && predicts()) {
    ELASTICDL_RETURN_IF_ERROR(
        RemovePredictions(options_.job.prediction_output_dir()));
  }
  // What workers say from now on waits for Run.
  ELASTICDL_RETURN_IF_ERROR(Listen());
  JobReporter::Commands commands;
  commands.stop = [this](const std::string& reason) { Stop(reason); };
  commands.scale = [this](const ScaleRequest& request) {
    ELASTICDL_RETURN_IF_ERROR(CheckScale(request));
    Post([this, request](absl::Time now) { Scale(now, request); });
    return absl::OkStatus();
  };
  const bool resumed = !plan.replay.empty();
  if (!resumed) {
    // The audit of an older job would seem to be of this one.
    absl::Status cut = CutAudit(options_.ledger_audit, 0);
    if (!cut.ok() && !absl::IsNotFound(cut)) return cut;
  }
  ELASTICDL_ASSIGN_OR_RETURN(
      reporter_, JobReporter::Create(options_, jobdir_, commands, resumed));
  const std::string in_the_way =
      resumed ? "" : CheckpointsInTheWay(options_.job, plan.restore_step);
  if (!in_the_way.empty()) reporter_->OnMessage(in_the_way);
  searcher_ = std::make_unique<CheckpointSearcher>(
      CheckpointStoreIn(options_.job.checkpoint_dir(),
                        options_.checkpoint_dir_for_init),
      [this](CheckpointAnswer answer) {
        Post([this, answer = std::move(answer)](absl::Time now) {
          controller_->OnCheckpointFound(now, answer);
        });
      });
  plan.search_checkpoint = [this](CheckpointQuery query) {
    searcher_->Search(std::move(query));
  };
  ELASTICDL_ASSIGN_OR_RETURN(
      controller_, JobController::Create(std::move(plan), *this, *reporter_,
                                         Clock::Real().Now()));
  servers_ = std::make_unique<ServerStreams>(*controller_, *this, worker_of_);
  ELASTICDL_RETURN_IF_ERROR(controller_->Begin(Clock::Real().Now()));
  const absl::Time now = Clock::Real().Now();
  servers_->SetCount(now, controller_->num_servers());
  if (controller_->continues()) {
    servers_->Resume(now);
    // Some may have copies of parts of others.
    servers_->SetCount(now, controller_->num_servers());
  }
  server_memory_.SetCount(servers_->count());
  if (!options_.ps_log.empty()) {
    const absl::Status removed =
        RemoveOtherPsLogs(options_.ps_log, controller_->job().run());
    // They only take up room.
    if (!removed.ok()) LogWarning("logs of old runs: ", removed.message());
  }
  if (options_.start_pods) ELASTICDL_RETURN_IF_ERROR(SetUpPods());
  // Last: who reads it takes the job for running.
  return reporter_->Publish(jobdir_);
}

absl::Status MasterImpl::OpenJournal(JobController::Options& plan) {
  ELASTICDL_ASSIGN_OR_RETURN(journal_,
                             Journal::Open(jobdir_.JournalFile(), plan.replay));
  plan.resume_grace = options_.worker_timeout;
  // A step or a load may be long; who hangs in it says so.
  plan.resume_step_grace =
      absl::Seconds(std::max(options_.job.step_timeout_seconds(),
                             options_.job.load_timeout_seconds()));
  plan.record = [this](const v1::JournalRecord& record) { Record(record); };
  for (const v1::JournalRecord& record : plan.replay) {
    if (record.has_target()) num_workers_ = record.target();
  }
  plan.replay_incomplete = !journal_->complete();
  if (plan.replay.empty()) return absl::OkStatus();
  // None of these is worth the job.
  if (const auto keep = AuditBytesToKeep(plan.replay); keep.has_value()) {
    const absl::Status cut = CutAudit(options_.ledger_audit, *keep);
    if (!cut.ok()) LogError("--ledger_audit is incomplete: ", cut.message());
  }
  DropIfUnwritable("--ledger_audit", options_.ledger_audit);
  DropIfUnwritable("--event_log", options_.event_log);
  return absl::OkStatus();
}

absl::Status MasterImpl::Listen() {
  rendezvous::StreamServer::Options options;
  // Pods on this machine need no more than the loopback.
  const std::string pods_see =
      options_.slurm.has_value() ? options_.slurm->host : "127.0.0.1";
  const bool here = options_.start_pods && !options_.cluster.has_value() &&
                    pods_see == "127.0.0.1";
  const std::string host = here ? "127.0.0.1" : "0.0.0.0";
  options.address = absl::StrCat(host, ":", options_.port);
  options.token = options_.token;
  options.keepalive_timeout = options_.worker_timeout;
  // More often would hardly find out sooner, and each ping costs about as much
  // as a message: thousands of workers would keep this process busy.
  options.keepalive = std::clamp(options_.worker_timeout / 6, options.keepalive,
                                 absl::Seconds(5));
  options.reserved_port = options_.parent.has_value();
  ELASTICDL_ASSIGN_OR_RETURN(server_,
                             rendezvous::StreamServer::Start(options, *this));
  const std::string address = absl::StrCat("localhost:", server_->port());
  worker_master_addr_ = absl::StrCat(pods_see, ":", server_->port());
  LogInfo("job ", options_.job.job_name(), " listens on ", host, ":",
          server_->port());
  ELASTICDL_RETURN_IF_ERROR(jobdir_.WritePid("master", getpid()));
  return jobdir_.WriteAddress(address);
}

absl::Status MasterImpl::SetUpPods() {
  PodManagerOptions options;
  options.job_name = options_.job.job_name();
  options.num_workers = num_workers_;
  options.num_servers = servers_->count();
  options.server_priority = options_.ps_pod_priority;
  options.relaunch_on_worker_failure = options_.relaunch_on_worker_failure;
  options.relaunch = options_.relaunch;
  options.attach_timeout = options_.worker_start_timeout;
  // In a cluster the pod has the log: it is not deleted.
  if (!options_.cluster.has_value()) {
    options.server_attach_timeout =
        std::min(options_.worker_start_timeout, kServerStartTimeout);
  }
  ELASTICDL_ASSIGN_OR_RETURN(options.priority,
                             ParseWorkerPriority(options_.worker_pod_priority));
  options.first_worker_id = controller_->next_worker_id();
  pods_ = std::make_unique<PodManager>(options);
  const PodEventSink sink = [this](const PodEvent& event) {
    Post([this, event](absl::Time now) { OnPodEvent(now, event); });
  };
  if (options_.cluster.has_value()) return StartClusterBackend(sink);
  if (options_.slurm.has_value()) {
    ELASTICDL_ASSIGN_OR_RETURN(
        backend_,
        StartSlurmPodBackend(*options_.slurm, options_.environment, sink));
    // The steps of the master before this one have ended with it.
    ForgetDeadWorkers({});
    return absl::OkStatus();
  }
  LocalPodBackend::Options backend;
  backend.environment = options_.environment;
  backend.fork_server = options_.worker_argv[0];
  if (options_.parent.has_value()) {
    backend.parent = options_.parent->pid;
    backend.ended_fd = options_.parent->ended_fd;
  }
  ELASTICDL_ASSIGN_OR_RETURN(auto started,
                             LocalPodBackend::Start(backend, sink));
  LocalPodBackend& local = *started;
  backend_ = std::move(started);
  if (options_.parent.has_value()) AdoptProcesses(local);
  return absl::OkStatus();
}

// Those of the master before this one. One that has ended since is adopted too:
// the backend tells how it ended.
void MasterImpl::AdoptProcesses(LocalPodBackend& backend) {
  std::vector<PodEvent> existing;
  for (const auto& [name, pid] : jobdir_.ReadPids()) {
    PodEvent pod;
    if (!ParsePodName(name, options_.job.job_name(), &pod)) continue;
    if (backend.Adopt(name, pid).ok()) {
      pod.phase = PodPhase::kRunning;
      pod.pid = pid;
      running_.insert(name);
    } else {
      pod.phase = PodPhase::kFailed;
      jobdir_.RemovePid(name);
    }
    existing.push_back(std::move(pod));
  }
  pods_->Adopt(existing);
  ForgetDeadWorkers(existing);
}

absl::Status MasterImpl::StartClusterBackend(const PodEventSink& sink) {
  MasterPod::Options pod = PodOptions(*options_.cluster);
  pod.job_name = options_.job.job_name();
  pod.port = server_->port();
  pod.config.environment = options_.environment;
  pod.environment = options_.environment;
  ELASTICDL_ASSIGN_OR_RETURN(MasterPod connected, MasterPod::Connect(pod));
  pod_ = std::make_unique<MasterPod>(std::move(connected));
  worker_master_addr_ = pod_->master_address();
  LogInfo("workers find this master at ", worker_master_addr_);
  KubePodBackend::Options backend;
  ELASTICDL_ASSIGN_OR_RETURN(backend.client, pod_->MakeClient());
  backend.job = pod_->job();
  backend.worker_template = pod_->worker_template();
  backend.ps_template = pod_->ps_template();
  ELASTICDL_ASSIGN_OR_RETURN(auto started,
                             KubePodBackend::Start(std::move(backend), sink));
  const std::vector<PodEvent> existing = started->existing();
  backend_ = std::move(started);
  pods_->Adopt(existing);
  ForgetDeadWorkers(existing);
  return absl::OkStatus();
}

// Of the master before this one: whoever has no living pod does not come back.
void MasterImpl::ForgetDeadWorkers(const std::vector<PodEvent>& existing) {
  std::set<int64_t> dead = controller_->awaited();
  for (const PodEvent& pod : existing) {
    if (pod.type == PodType::kWorker && !IsFinal(pod.phase)) dead.erase(pod.id);
  }
  for (const int64_t id : dead) {
    controller_->OnWorkerEnded(Clock::Real().Now(), id,
                               {/*crashed=*/false, "ended without a master"});
  }
}
}  // namespace elasticdl::master
