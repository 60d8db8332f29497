#include "command_job.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/status.h"
#include "elasticdl/jobdir.h"
#include "job_reporter.h"
#include "local_pod_backend.h"
#include "pod_manager.h"
#include "slurm_pod_backend.h"

namespace elasticdl::master {
namespace {

// How long stopped commands have to end; more than the pod manager's grace,
// after which they are killed.
constexpr absl::Duration kCommandGrace = absl::Seconds(20);

// Everything happens on the thread that calls Run: other threads post what they
// have seen.
class CommandJob : public Master {
 public:
  explicit CommandJob(MasterOptions options)
      : options_(std::move(options)),
        jobdir_(jobdir::JobDir::FromPath(options_.job_dir)),
        posted_(std::numeric_limits<size_t>::max()) {}
  ~CommandJob() override {
    if (backend_ != nullptr) backend_->Stop();
  }

  absl::Status SetUp();
  int Run() override;
  void Stop(const std::string& reason) override {
    Post([this, reason](absl::Time now) { OnStop(now, reason); });
  }
  // Nor are its pods adopted by another master.
  bool ProbesFail() const override { return false; }
  // A command has no state that a later run could go on from.
  void Suspend(const std::string& reason) override {
    Post([this, reason](absl::Time now) {
      // Slurm says it several times.
      if (stops_ == 0) OnStop(now, reason);
    });
  }

 private:
  using Task = std::function<void(absl::Time now)>;

  void Post(Task task) { posted_.Push(std::move(task)); }
  void OnStop(absl::Time now, const std::string& reason);
  void OnPodEvent(absl::Time now, const PodEvent& event);
  void Execute(const std::vector<PodDecision>& decisions);
  void CreatePod(const PodDecision& decision);
  void Publish(absl::Time now);
  bool Over(absl::Time now) const;

  const MasterOptions options_;
  const jobdir::JobDir jobdir_;
  // Own synchronisation.
  Queue<Task> posted_;

  // Used on the loop's thread only.
  std::unique_ptr<JobReporter> reporter_;
  std::unique_ptr<PodManager> pods_;
  int stops_ = 0;
  std::optional<absl::Time> give_up_;

  // Thread-safe; its thread calls Post.
  std::unique_ptr<PodBackend> backend_;
};

absl::Status CommandJob::SetUp() {
  if (!options_.start_pods) {
    return absl::InvalidArgumentError(
        "--job_command needs a master that starts the workers "
        "(--pod_backend=local)");
  }
  JobReporter::Commands commands;
  commands.stop = [this](const std::string& reason) { Stop(reason); };
  commands.scale = [](const ScaleRequest&) {
    return absl::FailedPreconditionError(
        "the number of workers of a --job_command cannot be changed");
  };
  ELASTICDL_ASSIGN_OR_RETURN(reporter_,
                             JobReporter::Create(options_, jobdir_, commands,
                                                 /*resumed=*/false));
  PodManagerOptions pods;
  pods.job_name = options_.job.job_name();
  pods.num_workers = options_.num_workers;
  pods.relaunch_on_worker_failure = options_.relaunch_on_worker_failure;
  pods.relaunch = options_.relaunch;
  pods.exit_zero_is_done = true;
  ELASTICDL_ASSIGN_OR_RETURN(pods.priority,
                             ParseWorkerPriority(options_.worker_pod_priority));
  pods_ = std::make_unique<PodManager>(pods);
  const PodEventSink sink = [this](const PodEvent& event) {
    Post([this, event](absl::Time now) { OnPodEvent(now, event); });
  };
  if (options_.slurm.has_value()) {
    ELASTICDL_ASSIGN_OR_RETURN(
        backend_,
        StartSlurmPodBackend(*options_.slurm, options_.environment, sink));
  } else {
    LocalPodBackend::Options backend;
    backend.environment = options_.environment;
    ELASTICDL_ASSIGN_OR_RETURN(backend_, LocalPodBackend::Start(backend, sink));
  }
  ELASTICDL_RETURN_IF_ERROR(jobdir_.WritePid("master", getpid()));
  return reporter_->Publish(jobdir_);
}

int CommandJob::Run() {
  absl::Time now = Clock::Real().Now();
  reporter_->JobStarted(options_.num_workers, 0);
  Execute(pods_->Start(now));
  while (!Over(now)) {
    absl::Time wake = std::min(pods_->next_wake(), reporter_->next_tick());
    if (give_up_.has_value()) wake = std::min(wake, *give_up_);
    std::optional<Task> task = posted_.Pop(wake - now);
    now = Clock::Real().Now();
    if (task.has_value()) (*task)(now);
    if (pods_->next_wake() <= now) Execute(pods_->OnTimer(now));
    Publish(now);
  }
  backend_->Stop();
  const JobOutcome& outcome = pods_->outcome();
  const int exit_code = outcome.state == JobState::kSucceeded ? 0 : 1;
  reporter_->JobEnded(exit_code, outcome.reason);
  reporter_->EndPage();
  return exit_code;
}

void CommandJob::Publish(absl::Time now) {
  const std::vector<PodInfo> pods = pods_->pods();
  const auto running =
      std::count_if(pods.begin(), pods.end(),
                    [](const PodInfo& pod) { return pod.state == "Running"; });
  reporter_->Tick(now, TaskProgress(), std::nullopt, static_cast<int>(running),
                  pods);
}

bool CommandJob::Over(absl::Time now) const {
  if (give_up_.has_value() && now >= *give_up_) return true;
  return pods_->outcome().state != JobState::kRunning && pods_->all_gone();
}

void CommandJob::OnStop(absl::Time now, const std::string& reason) {
  reporter_->OnMessage(absl::StrCat("stopping (", reason, ")"));
  reporter_->Stopping();
  // The second time, nobody is asked any more.
  give_up_ = ++stops_ > 1 ? now : now + kCommandGrace;
  Execute(pods_->Stop(reason, now));
}

void CommandJob::OnPodEvent(absl::Time now, const PodEvent& event) {
  const std::optional<PodIdentity> who = pods_->Find(event.name);
  if (event.phase == PodPhase::kRunning && who.has_value()) {
    jobdir_.WritePid(event.name, event.pid).IgnoreError();
    reporter_->PodStarted(event.name, who->type, who->id, event.pid);
    reporter_->OnMessage(
        absl::StrCat(event.name, " runs (pid ", event.pid, ")"));
  } else if (IsFinal(event.phase)) {
    jobdir_.RemovePid(event.name);
  }
  Execute(pods_->OnPodEvent(event, now));
}

void CommandJob::Execute(const std::vector<PodDecision>& decisions) {
  for (const PodDecision& decision : decisions) {
    switch (decision.kind) {
      case PodDecision::Kind::kCreate:
        CreatePod(decision);
        break;
      case PodDecision::Kind::kDelete:
        // NOT_FOUND: it has ended by itself.
        backend_->Delete(decision.name, decision.grace).IgnoreError();
        break;
      case PodDecision::Kind::kEnded:
        reporter_->PodEnded(decision.name, decision.id, decision.reason,
                            decision.process_failure, decision.asked);
        reporter_->OnMessage(
            absl::StrCat(decision.name, " ended: ", decision.reason));
        break;
      case PodDecision::Kind::kDelayed:
      case PodDecision::Kind::kGaveUp:
        reporter_->OnMessage(
            absl::StrCat(decision.name, ": ", decision.reason));
        break;
    }
  }
}

void CommandJob::CreatePod(const PodDecision& decision) {
  PodSpec spec;
  spec.name = decision.name;
  spec.id = decision.id;
  spec.priority = decision.priority;
  spec.argv = {"/bin/bash", "-c", options_.job_command};
  spec.env = {{"WORKER_ID", absl::StrCat(decision.id)},
              {"WORKER_NUM", absl::StrCat(options_.num_workers)}};
  spec.log_file = jobdir_.LogFile(decision.name);
  LogInfo("create ", decision.name, ": ", decision.reason);
  reporter_->PodCreated(decision.name, decision.type, decision.id,
                        decision.replaces, decision.reason);
  const absl::Status status = backend_->Create(spec);
  if (status.ok()) return;
  LogWarning("creating ", decision.name, ": ", status.message());
  Execute(pods_->CreateFailed(decision.name, status, Clock::Real().Now()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Master>> CreateCommandJob(
    MasterOptions options) {
  auto job = std::make_unique<CommandJob>(std::move(options));
  ELASTICDL_RETURN_IF_ERROR(job->SetUp());
  return job;
}

}  // namespace elasticdl::master
