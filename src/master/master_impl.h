// The master of a job: one event loop over messages from workers, servers, pods
// and users, a thin shell around JobController and PodManager. master.cc has
// the loop, master_setup.cc the start, master_pods.cc everything about pods.

#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint_search.h"
#include "elasticdl/common/life_sign.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/jobdir.h"
#include "elasticdl/master.h"
#include "elasticdl/rendezvous/stream_server.h"
#include "job_controller.h"
#include "job_reporter.h"
#include "journal.h"
#include "kept_states.h"
#include "local_pod_backend.h"
#include "master_pod.h"
#include "pod_backend.h"
#include "pod_manager.h"
#include "server_streams.h"
#include "silence_watch.h"
#include "start_watch.h"

namespace elasticdl::master {

// Everything happens on the thread that calls Run: other threads post events.
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
  bool ProbesFail() const override {
    return reporter_->ProbesFail(Clock::Real().Now());
  }
  void Suspend(const std::string& reason) override {
    Post([this, reason](absl::Time now) { OnSuspend(now, reason); });
  }

  // StreamSink.
  void OnMessage(ConnectionId connection, v1::WorkerMessage message) override {
    Post([this, connection, message = std::move(message)](absl::Time now) {
      OnHeard(now, connection);
      if (message.has_pong()) return;
      if (message.has_server_hello()) {
        WatchProcess(connection, SignOf(message.server_hello()));
      }
      if (servers_->OnMessage(now, connection, message)) return;
      controller_->OnMessage(now, connection, message);
      if (message.has_leaving()) NoteLeaving(now, connection);
      if (message.has_hello()) {
        worker_of_[connection] = message.hello().worker_id();
        WatchProcess(connection, SignOf(message.hello()));
        if (message.hello().resuming() && servers_->count() > 0) {
          servers_->OnWorkerBack(connection);
        }
      }
    });
  }
  void OnClosed(ConnectionId connection, const absl::Status& status) override {
    Post([this, connection, status](absl::Time now) {
      OnGone(now, connection, status);
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
  void AdoptProcesses(LocalPodBackend& backend);
  void ForgetDeadWorkers(const std::vector<PodEvent>& existing);
  absl::Status CheckScale(const ScaleRequest& request) const;
  absl::Status CheckWorkers(int64_t num_workers) const;
  absl::Status CheckServers(int64_t num_servers) const;
  void Scale(absl::Time now, const ScaleRequest& request);
  void ScaleWorkers(absl::Time now, int64_t num_workers);
  void FollowServers(absl::Time now);
  void OnStop(absl::Time now, const std::string& reason);
  void OnSuspend(absl::Time now, const std::string& reason);
  void OnPodEvent(absl::Time now, PodEvent event);
  void OnWorkerPodEnded(absl::Time now, int64_t id, const PodEvent& event);
  template <typename Hello>
  static LifeSign SignOf(const Hello& hello) {
    return {static_cast<int32_t>(hello.pid()), hello.life_sign_fd(),
            hello.life_sign_id()};
  }
  void WatchProcess(ConnectionId connection, const LifeSign& sign);
  void OnGone(absl::Time now, ConnectionId connection,
              const absl::Status& status);
  void OnHeard(absl::Time now, ConnectionId connection);
  void WatchSilence(absl::Time now);
  // Whose stream it is, for people.
  struct Who {
    PodType type = PodType::kWorker;
    int64_t id = 0;
  };
  std::optional<Who> WhoIs(ConnectionId connection) const;
  void NoteLeaving(absl::Time now, ConnectionId connection);
  void SuspendIfAllLeave(absl::Time now);
  void Execute(const std::vector<PodDecision>& decisions);
  void CreatePod(const PodDecision& decision);
  void DeletePod(const PodDecision& decision);
  void CheckPods(absl::Time now);
  void ReplaceLate(absl::Time now);
  void NoteKilled(const PodDecision& ended);
  void BeginEnding(absl::Time now);
  void OnTimers(absl::Time now);
  void ReplaceHangingServers(absl::Time now);
  absl::Time NextWake() const;
  bool Over(absl::Time now);
  void ShutDown();

  // Constant after SetUp.
  MasterOptions options_;
  const jobdir::JobDir jobdir_;
  // Own synchronisation.
  Queue<Task> posted_;
  ServerMemory server_memory_;

  // Used on the loop's thread only.
  std::unique_ptr<Journal> journal_;
  bool journal_failed_ = false;
  absl::Time next_shortening_ = absl::InfinitePast();
  // What was asked for last.
  int64_t num_workers_ = options_.num_workers;
  // Where workers find this master.
  std::string worker_master_addr_;
  // Its own pod, in a cluster.
  std::unique_ptr<MasterPod> pod_;
  std::unique_ptr<JobReporter> reporter_;
  // Of a job whose workers are processes of this host.
  std::unique_ptr<StateKeeper> keeper_;
  std::unique_ptr<JobController> controller_;
  std::unique_ptr<PodManager> pods_;
  std::map<ConnectionId, int64_t> worker_of_;
  // Numbers of watch_.
  std::map<ConnectionId, int64_t> sign_of_;
  std::unique_ptr<ServerStreams> servers_;
  SilenceWatch silence_;
  // Pods that were told to have started.
  std::set<std::string> running_;
  // Of a training job on this machine.
  StartWatch start_watch_;
  int64_t first_step_ = 0;
  // It has trained something; a rollback may have voided that.
  bool trained_ = false;
  // Why the workers will never be ready.
  std::string cannot_start_;
  int stops_ = 0;
  // Set when the job is ending: when patience ends.
  std::optional<absl::Time> give_up_;
  // All is done but to tell servers that are away.
  bool awaits_servers_ = false;

  // Thread-safe; their threads call Post.
  std::unique_ptr<CheckpointSearcher> searcher_;
  std::unique_ptr<rendezvous::StreamServer> server_;
  std::unique_ptr<PodBackend> backend_;
  LifeWatch watch_;
};

MasterPod::Options PodOptions(const ClusterOptions& cluster);

}  // namespace elasticdl::master
