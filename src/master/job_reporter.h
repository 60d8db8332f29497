// Forwards what happens in a job to the event log, the audit, TensorBoard, the
// terminal and the status page.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "activity_line.h"
#include "checkpoint_lines.h"
#include "elasticdl/jobdir.h"
#include "elasticdl/master.h"
#include "elasticdl/trace/timeline_file.h"
#include "elasticdl/v1/master.pb.h"
#include "evaluation.h"
#include "event_log.h"
#include "http_status.h"
#include "job_output.h"
#include "pod_manager.h"
#include "progress_display.h"
#include "rate_meter.h"
#include "status_board.h"
#include "task_manager.h"
#include "telemetry_book.h"
#include "tensorboard.h"
#include "world_change.h"

namespace elasticdl::master {

// Runs on the master's loop thread; the status page's threads see snapshots.
class JobReporter : public JobObserver {
 public:
  // What the status page may ask for; called on its threads.
  struct Commands {
    std::function<void(const std::string& reason)> stop;
    std::function<absl::Status(const ScaleRequest& request)> scale;
  };
  // Starts the status page; its address is not known to others before Publish.
  // `resumed`: the job continues after a restart of the master.
  static absl::StatusOr<std::unique_ptr<JobReporter>> Create(
      const MasterOptions& options, const jobdir::JobDir& jobdir,
      const Commands& commands, bool resumed);
  ~JobReporter() override;
  // See HttpStatus. Any thread.
  bool ProbesFail(absl::Time now) const { return http_->ProbesFail(now); }
  // Writes the address of the status page into the job's folder.
  absl::Status Publish(const jobdir::JobDir& jobdir) const;

  void JobStarted(int64_t num_workers, int64_t num_servers);
  void MasterRestarted(int64_t restarts, int signal);
  // `replaces` is -1 for a pod that replaces none.
  void PodCreated(const std::string& pod, PodType type, int64_t id,
                  int64_t replaces, const std::string& reason);
  void PodStarted(const std::string& pod, PodType type, int64_t id, pid_t pid);
  void PodEnded(const std::string& pod, int64_t id, const std::string& reason,
                bool failure, bool asked);
  int64_t audit_bytes() const { return audit_->bytes(); }
  void Scaled(int64_t num_workers);
  // Buckets will move; OnServersScaled says when they have.
  void ScalingServers(int64_t from, int64_t to);
  // The job was asked to stop.
  void Stopping();
  // The numbers in it are those of the last Publish.
  void JobEnded(int exit_code, const std::string& message);
  // After JobEnded: gives viewers some seconds to receive the end.
  void EndPage();
  // succeeded, stopped or failed, once it has ended.
  const std::string& state() const { return status_.state; }

  // Publishes these numbers and shows them.
  void Publish(absl::Time now, const TaskProgress& tasks,
               const std::optional<EvaluationProgress>& evaluation,
               int ready_workers, const std::vector<PodInfo>& pods);
  // Is it time for Tick to publish?
  bool due(absl::Time now) const { return now >= next_publish_; }
  // Counts to publish next.
  void Ledger(const LedgerCounts& counts) { status_.ledger = counts; }
  // It has not answered for so long; it does again.
  void Silent(PodType type, int64_t id, absl::Duration silence);
  void Heard(PodType type, int64_t id);
  // What goes on while no data is worked on (Progress::activity).
  void Activity(std::string text);
  void Draw(absl::Time now) { display_->Tick(now); }
  // Publishes when it is due, and draws.
  void Tick(absl::Time now, const TaskProgress& tasks,
            const std::optional<EvaluationProgress>& evaluation,
            int ready_workers, const std::vector<PodInfo>& pods);
  absl::Time next_tick() const;

  // JobObserver.
  void OnWorkerReady(int64_t worker_id, int64_t pid, int64_t step) override;
  void OnWorkerLost(int64_t worker_id, const std::string& reason) override;
  void OnCommit(const CommittedRange& range, int64_t step,
                int64_t generation) override;
  void OnCutBack(int64_t step) override;
  void OnProgress(const v1::Progress& progress, int64_t records) override;
  void OnWorld(const WorldChange& world) override;
  void OnCaughtUp(int64_t worker_id, int64_t generation) override;
  void OnKeptGivenUp(int64_t step, const std::string& reason) override;
  void OnFirstStep(int64_t generation, int64_t step) override;
  void OnCheckpoint(const v1::CheckpointDone& done) override;
  void OnEvaluation(const EvaluationResult& result) override;
  void OnEvaluating(int64_t step, const std::vector<int64_t>& workers) override;
  void OnSaving(const std::vector<int64_t>& workers) override;
  void OnTaskDone(int64_t records) override;
  void OnExportedRows(const v1::ExportedRows& rows) override;
  void OnQuarantined(const QuarantinedRange& bad) override;
  void OnServersScaled(int servers) override;
  void OnPart(const PartChange& change) override;
  void OnTelemetry(absl::Time now, bool server, int64_t id,
                   const v1::Telemetry& telemetry) override;
  void OnModel(const v1::ModelSummary& model) override;
  void OnHistograms(const v1::Histograms& histograms) override;
  void OnMessage(const std::string& text) override;

 private:
  explicit JobReporter(const MasterOptions& options);
  void Say(const std::string& text);
  void CheckAudit(const absl::Status& status);
  void CheckTensorBoard(const absl::Status& status);
  absl::Status OpenTimeline(bool resumed);
  void CheckTimeline(const absl::Status& status);
  void MarkTimeline(const std::string& name, const std::string& detail);
  void CheckServerMemory(int64_t server, int64_t bytes, int64_t limit);
  void ReadEvents(const std::string& path);
  // train, evaluate or predict.
  std::string Phase() const;
  void LogProgress(absl::Time now, bool last);
  void UpdateStatus(absl::Time now, const TaskProgress& tasks,
                    int ready_workers, const std::vector<PodInfo>& pods);
  master::Progress Shown(
      const std::optional<EvaluationProgress>& evaluation) const;

  const MasterOptions options_;
  std::unique_ptr<EventLog> events_;
  std::unique_ptr<LedgerAudit> audit_;
  std::unique_ptr<TensorBoard> tensorboard_;
  std::unique_ptr<trace::TimelineFile> timeline_;
  TelemetryBook telemetry_;
  std::unique_ptr<ProgressDisplay> display_;
  JobRate rate_;
  // Of an evaluation.
  double tasks_per_s_ = 0;
  int64_t target_workers_ = 0;
  ActivityLine activity_;
  CheckpointLines checkpoint_lines_;
  JobStatus status_;
  absl::Time next_publish_ = absl::InfinitePast();
  absl::Time started_ = absl::InfinitePast();
  absl::Time next_progress_ = absl::InfinitePast();
  bool audit_failed_ = false;
  bool tensorboard_failed_ = false;
  bool timeline_failed_ = false;
  // What the model consists of was told.
  bool model_told_ = false;
  // --ps_backup: some part had no backup since the last time all had one.
  bool backup_missing_ = false;
  // Servers of which was said that their memory is nearly used up.
  std::set<int64_t> nearly_full_;

  // Shared with the status page's threads.
  StatusBoard board_;
  std::unique_ptr<HttpStatus> http_;
};

}  // namespace elasticdl::master
