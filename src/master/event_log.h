// The event log of a job, one JSON object per line, for tests, the status page
// and other tools; and the audit of committed records.
//
// Every line has "time" (seconds since 1970, with microseconds) and "event".
//   job_start    job, command, pid [, flags]
//   master_restarted  restarts, signal: it was killed and goes on
//   pod_created  pod, type, id [, replaces], reason
//   pod_started  pod, type, id, pid [, replaces, reason]
//   pod_ended    pod, id, reason, failure, asked
//   worker_ready worker_id
//   worker_lost  worker_id, reason
//   model        trained, frozen, buffers, bytes, tensors, …
//   world        generation, members, cause, pause_ms
//   checkpoint   version, path, ms | error
//   evaluation   step, metrics, records, ms
//   evaluating   step, workers: these and no others evaluate now
//   saving       workers: these and no others write a checkpoint now
//   silent       type, id, reason: it does not answer
//   heard        type, id: it does again
//   progress     step, epoch, loss, records_per_s, …: the numbers of the job
//   task_quarantined  shard, begin, end, failures, reason
//   scaled       from, to
//   ps_scaling   from, to: buckets are about to move
//   ps_scaled    servers: they have moved
//   job_end      state, reason, exit_code, step
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/mutex.h"
#include "part_change.h"
#include "pod_backend.h"
#include "status_board.h"

namespace elasticdl::master {

// Thread-safe. Each line reaches the kernel in one write, nothing is synced: a
// killed master leaves whole lines. A write that fails (full disk) is logged
// once and never stops the job.
class EventLog {
 public:
  // Appends to each of `paths`; empty ones are left out.
  static absl::StatusOr<std::unique_ptr<EventLog>> Open(
      const std::vector<std::string>& paths,
      const Clock& clock = Clock::Real());
  // Gets every line that is written from now on, on the thread that writes it.
  // Call it before other threads use the log.
  void SetListener(std::function<void(const std::string& line)> listener) {
    listener_ = std::move(listener);
  }

  void JobStart(const std::string& job, const std::string& command,
                const std::vector<std::string>& flags = {});
  // `restarts`: how often so far; `signal`: what killed the last one.
  void MasterRestarted(int64_t restarts, int signal);
  void PodCreated(const std::string& pod, PodType type, int64_t id,
                  int64_t replaces, const std::string& reason);
  // `replaces` is -1 for a pod that replaces none.
  void PodStarted(const std::string& pod, PodType type, int64_t id, pid_t pid,
                  int64_t replaces = -1, const std::string& reason = "");
  void PodEnded(const std::string& pod, int64_t id, const std::string& reason,
                bool failure, bool asked);
  void WorkerReady(int64_t worker_id);
  void WorkerLost(int64_t worker_id, const std::string& reason);
  // `model`: the fields (model_summary.h).
  void Model(const nlohmann::ordered_json& model);
  void World(int64_t generation, const std::vector<int64_t>& members,
             const std::string& cause, absl::Duration pause);
  void CaughtUp(int64_t worker_id, int64_t generation);
  void StateGivenUp(int64_t step, const std::string& reason);
  void FirstStep(int64_t generation, int64_t step);
  void Checkpoint(int64_t version, const std::string& path,
                  absl::Duration duration);
  void CheckpointFailed(int64_t version, const std::string& path,
                        const absl::Status& error);
  void Evaluation(int64_t step, const std::map<std::string, double>& metrics,
                  int64_t records, absl::Duration duration);
  void Evaluating(int64_t step, const std::vector<int64_t>& workers);
  void Saving(const std::vector<int64_t>& workers);
  void Silent(PodType type, int64_t id, const std::string& reason);
  void Heard(PodType type, int64_t id);
  void Progress(const JobStatus& status);
  void TaskQuarantined(const std::string& shard, int64_t begin, int64_t end,
                       int64_t failures, const std::string& reason);
  void Part(const PartChange& change);
  void Scaled(int64_t from, int64_t to);
  void ScalingServers(int64_t from, int64_t to);
  void ServersScaled(int64_t servers);
  void ServerNearlyFull(int64_t server, int64_t bytes, int64_t limit);
  void ExportedRows(const std::string& folder, int64_t tables, int64_t files,
                    int64_t rows);
  // `state`: succeeded, failed, stopped.
  void JobEnd(const std::string& state, const std::string& reason,
              int exit_code, int64_t step);

 private:
  struct Line;
  EventLog(std::vector<LineWriter> writers, const Clock& clock);
  void Write(const Line& line);

  const Clock& clock_;
  std::function<void(const std::string& line)> listener_;
  Mutex mu_;
  std::vector<LineWriter> writers_ ABSL_GUARDED_BY(mu_);
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
};

// A range of records that is in the model for good.
struct AuditedRange {
  int64_t epoch = 0;
  std::string shard;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t worker_id = 0;
  int64_t generation = 0;
  int64_t step = 0;
};

// Truncates the file of an audit to `bytes`; a restarted master then writes the
// lines after that again. Never extends the file: DATA_LOSS when it is shorter,
// NOT_FOUND when it is missing. Does nothing for an empty path or a pipe.
absl::Status CutAudit(const std::string& path, int64_t bytes);

// --ledger_audit: one JSON object per committed range, fields as in
// AuditedRange. Thread-safe.
class LedgerAudit {
 public:
  // An empty path gives an audit that drops everything.
  static absl::StatusOr<std::unique_ptr<LedgerAudit>> Open(
      const std::string& path);

  // Writes all ranges in one write. The caller must report an error: an
  // incomplete audit proves nothing.
  absl::Status Append(const std::vector<AuditedRange>& ranges);
  // {"cut_back": step}: the job was rolled back to `step`; every earlier line
  // with a later step is void.
  absl::Status AppendCutBack(int64_t step);
  // Length of the file.
  int64_t bytes() const {
    MutexLock lock(mu_);
    return writer_.bytes();
  }

 private:
  explicit LedgerAudit(LineWriter writer) : writer_(std::move(writer)) {}
  mutable Mutex mu_;
  LineWriter writer_ ABSL_GUARDED_BY(mu_);
};

}  // namespace elasticdl::master
