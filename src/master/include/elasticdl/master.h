// The master process of a job: grants tasks, keeps the workers running, reports
// progress.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/v1/job.pb.h"

namespace elasticdl::master {

// The master runs in a pod of a cluster and creates pods for its workers.
struct ClusterOptions {
  std::string namespace_name = "default";
  // This very pod.
  std::string pod_name;
  std::string pod_ip;
  // Folder with worker-pod.json and, for parameter servers, ps-pod.json
  // (docs/design/0004-kubernetes.md).
  std::string pod_template_dir;
  // Values of variables: KUBECONFIG, HOME, KUBERNETES_SERVICE_HOST and _PORT.
  std::string kubeconfig;
  std::string home;
  std::string service_host;
  std::string service_port;
  bool force_kubeconfig = false;
};

// The master runs inside an allocation of Slurm and starts its pods as steps.
struct SlurmOptions {
  std::string job_id;
  // Of each step.
  int64_t cpus_per_task = 1;
  // Each worker gets one GPU.
  bool gpus = false;
  // The master itself runs in a step: other steps must share its resources.
  bool in_step = false;
  // By which steps reach this master: a name or an address.
  std::string host = "127.0.0.1";
};

// The process that has started the master starts it again when it is killed
// (docs/design/0015-local-master-restart.md).
struct ParentOptions {
  // Local pods become children of that process and outlive the master.
  int pid = 0;
  // Where it is told that it may wait for one of them.
  int ended_fd = -1;
  // How often it has started the master again, and the signal that killed the
  // last one.
  int64_t restarts = 0;
  int signal = 0;
};

struct MasterOptions {
  // What workers are told. job_type, data paths and strategy are set.
  v1::JobSpec job;

  // Data.
  int64_t num_minibatches_per_task = 8;
  int32_t num_epochs = 1;
  bool shuffle = true;
  uint64_t seed = 0;
  // The model may have a data reader of its own, so unreadable data is only an
  // error when a worker says that it has none.
  bool model_may_read_data = false;
  // Evaluate the last version (validation data is given).
  bool final_evaluation = false;

  int task_max_failures = 3;
  // Zero = decided from how long tasks take; infinite = never.
  absl::Duration task_timeout = absl::ZeroDuration();
  absl::Duration evaluation_start_delay = absl::Seconds(100);
  absl::Duration evaluation_throttle = absl::ZeroDuration();
  // A version-V folder or a folder of them; empty = fresh weights.
  std::string checkpoint_dir_for_init;

  // Pods. Without them, workers are started by hand.
  bool start_pods = true;
  // They are pods of a cluster; else processes of this machine.
  std::optional<ClusterOptions> cluster;
  // They are steps of an allocation; not together with `cluster`.
  std::optional<SlurmOptions> slurm;
  // Of a local job whose pods outlive this process.
  std::optional<ParentOptions> parent;
  // A master that is started again in the same folder goes on with the job.
  bool keep_journal = false;
  int64_t num_workers = 1;
  // Training goes on while at least so many are there, and with at most so many
  // (0 = no limit).
  int64_t min_workers = 1;
  int64_t max_workers = 0;
  // A worker of which nothing is heard for so long is lost.
  absl::Duration worker_timeout = absl::Seconds(30);
  // One whose process runs for so long without coming to the master is
  // replaced.
  absl::Duration worker_start_timeout = absl::Minutes(2);
  int64_t relaunch_on_worker_failure = 1;
  // A worker that is gone is replaced.
  bool relaunch = true;
  std::string worker_pod_priority;
  // Program and arguments of a worker; --worker_id and --master_addr are added.
  std::vector<std::string> worker_argv;
  // Parameter servers; 0 = none. Pods elasticdl-ps-<job>-<id> with the ids
  // 0 .. num_ps_pods-1, which a relaunched server keeps.
  int64_t num_ps_pods = 0;
  std::string ps_pod_priority;
  // Program and arguments of a server; --ps_id, --master_addr and --ps_log are
  // added.
  std::vector<std::string> ps_argv;
  // The logs of this job's servers, a folder for each run. Those of earlier
  // runs are removed, and those of this one when it has succeeded.
  std::string ps_log;
  // A shell command to run in every worker instead of training; empty = train.
  // Of the job's specification only the name is used then.
  std::string job_command;
  // KEY=VALUE of this process, and of local pods.
  std::vector<std::string> environment;

  // Ports to listen on, for workers and of the status page; 0 picks a free one.
  int port = 50001;
  int http_port = 0;
  // The job's folder (elasticdl/jobdir.h), locked by the caller.
  std::string job_dir;
  std::string token;

  // auto: a live line on a terminal, plain lines in a pipe. none: nothing.
  std::string display = "auto";
  // The value of TERM.
  std::string terminal;
  std::string event_log;
  std::string ledger_audit;
  std::string tensorboard_log_dir;
  // Print what the model consists of.
  bool model_summary = false;
  // A file of trace events; "" = none.
  std::string timeline;
  // The flags that the user gave, without secrets, for the page.
  std::vector<std::string> shown_flags;
};

// Thread-safe.
class Master {
 public:
  // Opens data and checkpoint, starts to listen. Errors are the user's to mend:
  // they name the flag, file or port.
  static absl::StatusOr<std::unique_ptr<Master>> Create(MasterOptions options);
  virtual ~Master() = default;

  // Runs the job to its end and returns the exit code (0 done, 1 failed,
  // 4 done but records were quarantined, 5 suspended). Call once.
  virtual int Run() = 0;

  // Ends the job in an orderly way. From any thread; the second call is rude:
  // pods are killed.
  virtual void Stop(const std::string& reason) = 0;
  // On a cluster: a SIGTERM that comes now is from a kubelet that restarts the
  // container, because its liveness probe fails. The job should go on then.
  virtual bool ProbesFail() const = 0;

  // The same for a job that is to go on later (exit code 5). Repeating it has
  // no effect.
  virtual void Suspend(const std::string& reason) = 0;
};

// Records that the job was refused, for the reason `why`, before it began.
// Writes its end to the events of the folder `job_dir` (locked by the caller)
// and to `event_log`, unless that is empty. On a cluster, unless a retry may
// help, makes the master's pod end as failed instead of being restarted
// forever.
void RecordRefusedJob(const std::string& job_dir, const std::string& event_log,
                      const absl::Status& why,
                      const std::optional<ClusterOptions>& cluster);

}  // namespace elasticdl::master
