#include "elasticdl/master.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint_search.h"
#include "command_job.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/life_sign.h"
#include "elasticdl/common/limits.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"
#include "elasticdl/jobdir.h"
#include "elasticdl/rendezvous/stream_server.h"
#include "event_log.h"
#include "job_controller.h"
#include "job_plan.h"
#include "job_reporter.h"
#include "journal.h"
#include "kube_pod_backend.h"
#include "last_error.h"
#include "local_pod_backend.h"
#include "master_pod.h"
#include "pod_manager.h"
#include "prediction_files.h"
#include "ps_logs.h"
#include "server_streams.h"

namespace elasticdl::master {
namespace {

// How long workers have to end when the job has failed or was stopped; a job
// that is done waits for their last checkpoint.
constexpr absl::Duration kEndGrace = absl::Seconds(20);
constexpr absl::Duration kDoneGrace = absl::Minutes(15);
// When the journal could not be written anew for want of space.
constexpr absl::Duration kShortenAgain = absl::Seconds(1);

void DropIfUnwritable(const char* flag, std::string& path) {
  const absl::Status opened = LineWriter::Open(path).status();
  if (opened.ok()) return;
  LogError(flag, " is not written from here on: ", opened.message());
  path.clear();
}

// Everything happens on the thread that calls Run: other threads post what they
// have seen.
class MasterImpl : public Master,
                   public rendezvous::StreamSink,
                   public WorkerPort {
 public:
  explicit MasterImpl(MasterOptions options)
      : options_(std::move(options)),
        jobdir_(jobdir::JobDir::FromPath(options_.job_dir)),
        posted_(std::numeric_limits<size_t>::max()) {}
  ~MasterImpl() override { ShutDown(); }

  absl::Status SetUp();
  int Run() override;
  void Stop(const std::string& reason) override {
    Post([this, reason](absl::Time now) { OnStop(now, reason); });
  }

  // StreamSink.
  void OnMessage(ConnectionId connection, v1::WorkerMessage message) override {
    Post([this, connection, message = std::move(message)](absl::Time now) {
      if (servers_->OnMessage(now, connection, message)) return;
      controller_->OnMessage(now, connection, message);
      if (message.has_leaving()) NoteLeaving(connection);
      if (message.has_hello()) {
        worker_of_[connection] = message.hello().worker_id();
        WatchProcess(connection, message.hello());
        if (message.hello().resuming()) servers_->OnWorkerBack(connection);
      }
    });
  }
  void OnClosed(ConnectionId connection, const absl::Status& status) override {
    Post([this, connection, status](absl::Time now) {
      if (servers_->OnClosed(now, connection, status)) return;
      OnWorkerGone(now, connection, status);
    });
  }

  // WorkerPort.
  void Send(const std::vector<ConnectionId>& connections,
            v1::MasterMessage message) override {
    server_->Send(connections, std::move(message));
  }
  void SendToServer(int server, v1::MasterMessage message) override {
    if (servers_ != nullptr) servers_->Send(server, std::move(message));
  }
  void Close(ConnectionId connection, const absl::Status& status) override {
    server_->Close(connection, status);
  }
  void KillWorker(int64_t worker_id, const std::string& reason) override {
    if (pods_ == nullptr) return;
    auto decisions = pods_->Replace(worker_id, reason, Clock::Real().Now());
    if (decisions.ok()) Execute(*decisions);
  }

 private:
  using Task = std::function<void(absl::Time now)>;

  void Post(Task task) { posted_.Push(std::move(task)); }
  absl::Status OpenJournal(JobController::Options& plan);
  void Record(v1::JournalRecord record);
  void ShortenJournal(absl::Time now);
  bool predicts() const {
    return options_.job.job_type() == v1::PREDICTION_ONLY;
  }
  absl::Status Listen();
  absl::Status SetUpPods();
  absl::Status StartClusterBackend(const PodEventSink& sink);
  void ForgetDeadWorkers(const std::vector<PodEvent>& existing);
  absl::Status CheckScale(const ScaleRequest& request) const;
  absl::Status CheckWorkers(int64_t num_workers) const;
  absl::Status CheckServers(int64_t num_servers) const;
  void Scale(absl::Time now, const ScaleRequest& request);
  void ScaleWorkers(absl::Time now, int64_t num_workers);
  void FollowServers(absl::Time now);
  void OnStop(absl::Time now, const std::string& reason);
  void OnPodEvent(absl::Time now, PodEvent event);
  void OnWorkerPodEnded(absl::Time now, int64_t id, const PodEvent& event);
  void WatchProcess(ConnectionId connection, const v1::Hello& hello);
  void OnWorkerGone(absl::Time now, ConnectionId connection,
                    const absl::Status& status);
  void NoteLeaving(ConnectionId connection);
  void Execute(const std::vector<PodDecision>& decisions);
  void CreatePod(const PodDecision& decision);
  void DeletePod(const PodDecision& decision);
  void CheckPods(absl::Time now);
  void BeginEnding(absl::Time now);
  void OnTimers(absl::Time now);
  void ReplaceHangingServers(absl::Time now);
  absl::Time NextWake() const;
  bool Over(absl::Time now) const;
  void ShutDown();

  // Constant after SetUp.
  MasterOptions options_;
  const jobdir::JobDir jobdir_;
  // Own synchronisation.
  Queue<Task> posted_;

  // Used on the loop's thread only.
  std::unique_ptr<Journal> journal_;
  bool journal_failed_ = false;
  absl::Time next_shortening_ = absl::InfinitePast();
  // What was asked for last.
  int64_t num_workers_ = options_.num_workers;
  int64_t num_servers_ = options_.num_ps_pods;
  // Where workers find this master.
  std::string worker_master_addr_;
  // Its own pod, in a cluster.
  std::unique_ptr<MasterPod> pod_;
  std::unique_ptr<JobReporter> reporter_;
  std::unique_ptr<JobController> controller_;
  std::unique_ptr<PodManager> pods_;
  std::map<ConnectionId, int64_t> worker_of_;
  // Numbers of watch_.
  std::map<ConnectionId, int64_t> sign_of_;
  std::unique_ptr<ServerStreams> servers_;
  // Pods that were told to have started.
  std::set<std::string> running_;
  int stops_ = 0;
  // Set when the job is ending: when patience ends.
  std::optional<absl::Time> give_up_;

  // Thread-safe; their threads call Post.
  std::unique_ptr<CheckpointSearcher> searcher_;
  std::unique_ptr<rendezvous::StreamServer> server_;
  std::unique_ptr<PodBackend> backend_;
  LifeWatch watch_;
};

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

// By itself, or when the account is granted what it lacks.
bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status) ||
         absl::IsAlreadyExists(status);
}

absl::Status MasterImpl::SetUp() {
  ELASTICDL_ASSIGN_OR_RETURN(JobController::Options plan, PlanJob(options_));
  if (options_.job.master_timeout_seconds() > 0) {
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
  ELASTICDL_ASSIGN_OR_RETURN(reporter_,
                             JobReporter::Create(options_, jobdir_, commands));
  const std::string in_the_way =
      resumed ? "" : CheckpointsInTheWay(options_.job, plan.restore_step);
  if (!in_the_way.empty()) reporter_->OnMessage(in_the_way);
  searcher_ = std::make_unique<CheckpointSearcher>(
      CheckpointStoreIn(options_.job.checkpoint_dir()),
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
  servers_->SetCount(controller_->num_servers());
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
    if (record.has_buckets()) num_servers_ = record.buckets().target();
    if (record.state().has_buckets()) {
      num_servers_ = record.state().buckets().target();
    }
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

void MasterImpl::Record(v1::JournalRecord record) {
  record.set_audit_bytes(reporter_ == nullptr ? 0 : reporter_->audit_bytes());
  const absl::Status status = journal_->Append(record);
  if (status.ok() || journal_failed_) return;
  journal_failed_ = true;
  if (reporter_ == nullptr) return;
  reporter_->OnMessage(absl::StrCat(
      "the journal cannot be written: if the master is restarted now, training "
      "goes on from the newest checkpoint (",
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

absl::Status MasterImpl::Listen() {
  rendezvous::StreamServer::Options options;
  // Local pods need no more than the loopback.
  const std::string host = options_.start_pods && !options_.cluster.has_value()
                               ? "127.0.0.1"
                               : "0.0.0.0";
  options.address = absl::StrCat(host, ":", options_.port);
  options.token = options_.token;
  options.keepalive_timeout = options_.worker_timeout;
  ELASTICDL_ASSIGN_OR_RETURN(server_,
                             rendezvous::StreamServer::Start(options, *this));
  const std::string address = absl::StrCat("localhost:", server_->port());
  worker_master_addr_ = absl::StrCat("127.0.0.1:", server_->port());
  LogInfo("job ", options_.job.job_name(), " listens on ", host, ":",
          server_->port());
  ELASTICDL_RETURN_IF_ERROR(jobdir_.WritePid("master", getpid()));
  return jobdir_.WriteAddress(address);
}

absl::Status MasterImpl::SetUpPods() {
  PodManagerOptions options;
  options.job_name = options_.job.job_name();
  options.num_workers = num_workers_;
  options.num_servers = controller_->num_servers();
  options.server_priority = options_.ps_pod_priority;
  options.relaunch_on_worker_failure = options_.relaunch_on_worker_failure;
  options.relaunch = options_.relaunch;
  options.attach_timeout = options_.worker_start_timeout;
  ELASTICDL_ASSIGN_OR_RETURN(options.priority,
                             ParseWorkerPriority(options_.worker_pod_priority));
  options.first_worker_id = controller_->next_worker_id();
  pods_ = std::make_unique<PodManager>(options);
  const PodEventSink sink = [this](const PodEvent& event) {
    Post([this, event](absl::Time now) { OnPodEvent(now, event); });
  };
  if (options_.cluster.has_value()) return StartClusterBackend(sink);
  LocalPodBackend::Options backend;
  backend.environment = options_.environment;
  backend.fork_server = options_.worker_argv[0];
  ELASTICDL_ASSIGN_OR_RETURN(backend_, LocalPodBackend::Start(backend, sink));
  return absl::OkStatus();
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

int MasterImpl::Run() {
  absl::Time now = Clock::Real().Now();
  reporter_->JobStarted(num_workers_);
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
  JobResult result = controller_->result().value_or(
      JobResult{kExitJobFailed, "some workers did not end in time"});
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
  if (result.exit_code != kExitJobFailed && !options_.ps_log.empty()) {
    const absl::Status removed =
        RemovePsLogs(options_.ps_log, controller_->job().run());
    if (!removed.ok()) LogWarning("the servers' logs: ", removed.message());
  }
  reporter_->Activity("");
  reporter_->Ledger(controller_->ledger_counts());
  reporter_->Publish(now, controller_->progress(), std::nullopt,
                     controller_->num_ready_workers(), {});
  reporter_->JobEnded(result.exit_code, result.message);
  if (pod_ != nullptr) {
    const absl::Status told = pod_->ReportOutcome(
        reporter_->state(), result.exit_code, result.message);
    if (!told.ok()) LogWarning("telling the cluster: ", told.message());
    // A stop is an orderly end: the pod shows as Completed and is not started
    // again. Its notes hold the rest.
    if (told.ok() && reporter_->state() == "stopped") return 0;
  }
  return result.exit_code;
}

void MasterImpl::OnTimers(absl::Time now) {
  if (controller_->NextTimer() <= now) controller_->OnTimer(now);
  if (pods_ != nullptr && pods_->next_wake() <= now) {
    Execute(pods_->OnTimer(
        now, [this](int64_t id) { return controller_->IsAttached(id); }));
  }
  ReplaceHangingServers(now);
  reporter_->Activity(controller_->Activity());
  if (reporter_->due(now)) reporter_->Ledger(controller_->ledger_counts());
  reporter_->Tick(now, controller_->progress(),
                  controller_->evaluation_progress(),
                  controller_->num_ready_workers(),
                  pods_ == nullptr ? std::vector<PodInfo>() : pods_->pods());
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

absl::Time MasterImpl::NextWake() const {
  absl::Time next = std::min({controller_->NextTimer(), reporter_->next_tick(),
                              servers_->next_hanging()});
  if (pods_ != nullptr) next = std::min(next, pods_->next_wake());
  if (give_up_.has_value()) next = std::min(next, *give_up_);
  return next;
}

bool MasterImpl::Over(absl::Time now) const {
  if (!give_up_.has_value()) return false;
  if (now >= *give_up_) return true;
  return controller_->result().has_value() &&
         (pods_ == nullptr || pods_->all_gone());
}

void MasterImpl::OnStop(absl::Time now, const std::string& reason) {
  reporter_->OnMessage(absl::StrCat("stopping (", reason, ")"));
  reporter_->Stopping();
  controller_->StopJob(now, reason);
  // The second time, nobody is asked any more.
  if (++stops_ > 1) give_up_ = now;
}

// Called on the status page's threads: reads options only.
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
  if (num_servers < 1 || num_servers > kMaxParameterServers) {
    return absl::OutOfRangeError(absl::StrCat(
        "num_ps_pods must be at least 1 and at most ", kMaxParameterServers));
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
  if (request.num_servers.has_value() && *request.num_servers != num_servers_) {
    const int64_t before = std::exchange(num_servers_, *request.num_servers);
    controller_->ScaleServers(now, static_cast<int>(num_servers_));
    reporter_->ScalingServers(before, num_servers_);
  }
  if (request.num_workers.has_value()) {
    ScaleWorkers(now, *request.num_workers);
  }
}

// New servers are needed before buckets move, old ones until they have moved.
void MasterImpl::FollowServers(absl::Time now) {
  const int wanted = controller_->num_servers();
  if (controller_->ending() || wanted == servers_->count()) return;
  servers_->SetCount(wanted);
  if (pods_ == nullptr) return;
  const auto decisions = pods_->SetTarget(wanted, now, PodType::kPs);
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

void MasterImpl::CheckPods(absl::Time now) {
  if (pods_ == nullptr || controller_->ending()) return;
  const JobOutcome& outcome = pods_->outcome();
  if (outcome.state == JobState::kFailed) {
    controller_->Fail(now, outcome.reason);
  } else if (outcome.state == JobState::kSucceeded) {
    controller_->Fail(now, "all workers have ended, but there is work left");
  }
}

// A worker on this host that is killed is lost at once: its stream would stay
// open until the kernel has freed its memory.
void MasterImpl::WatchProcess(ConnectionId connection, const v1::Hello& hello) {
  if (hello.life_sign_id().empty() || sign_of_.count(connection) > 0) return;
  LifeSign sign;
  sign.pid = static_cast<int32_t>(hello.pid());
  sign.fd = hello.life_sign_fd();
  sign.id = hello.life_sign_id();
  const auto number = watch_.Add(sign, [this, connection] {
    Post([this, connection](absl::Time now) {
      const absl::Status died = absl::UnavailableError("its process died");
      server_->Close(connection, died);
      OnWorkerGone(now, connection, died);
    });
  });
  if (number.ok()) sign_of_[connection] = *number;
}

void MasterImpl::OnWorkerGone(absl::Time now, ConnectionId connection,
                              const absl::Status& status) {
  const auto sign = sign_of_.find(connection);
  if (sign != sign_of_.end()) {
    watch_.Remove(sign->second);
    sign_of_.erase(sign);
  }
  controller_->OnClosed(now, connection, status);
  worker_of_.erase(connection);
}

void MasterImpl::NoteLeaving(ConnectionId connection) {
  const auto found = worker_of_.find(connection);
  if (pods_ != nullptr && found != worker_of_.end()) {
    pods_->NoteLeaving(found->second);
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
// does not count against the worker.
void MasterImpl::OnWorkerPodEnded(absl::Time now, int64_t id,
                                  const PodEvent& event) {
  controller_->OnWorkerEnded(now, id,
                             {IsProcessFailure(event), DescribePodEnd(event)});
  if (controller_->BlamedOnTask(id)) pods_->ForgiveFailure(id);
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
                            decision.process_failure);
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

void MasterImpl::ShutDown() {
  if (searcher_ != nullptr) searcher_->Stop();
  if (backend_ != nullptr) backend_->Stop();
  if (server_ != nullptr) server_->Shutdown(absl::Seconds(1));
}

}  // namespace

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
  if (!cluster.has_value() || MayPass(why)) return;
  auto pod = MasterPod::Attach(PodOptions(*cluster));
  const absl::Status told =
      pod.ok() ? pod->ReportOutcome("failed", kExitJobFailed, reason)
               : pod.status();
  if (!told.ok()) LogWarning("telling the cluster: ", told.message());
}

}  // namespace elasticdl::master
