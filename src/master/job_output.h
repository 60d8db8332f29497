// The two output interfaces of a job's controller: WorkerPort sends messages to
// workers and servers, JobObserver reports what happens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "elasticdl/rendezvous/stream_server.h"
#include "elasticdl/v1/master.pb.h"
#include "evaluation.h"
#include "part_change.h"
#include "task_types.h"
#include "world_change.h"

namespace elasticdl::master {

using rendezvous::ConnectionId;

// The way to the workers and parameter servers. Must not call back.
class WorkerPort {
 public:
  virtual ~WorkerPort() = default;
  // To each of them.
  virtual void Send(const std::vector<ConnectionId>& connections,
                    v1::MasterMessage message) = 0;
  // Dropped when the server is not attached.
  virtual void SendToServer(int server, v1::MasterMessage message) = 0;
  virtual void Close(ConnectionId connection, const absl::Status& status) = 0;
  // The worker's process must end (it hangs or is not wanted).
  virtual void KillWorker(int64_t worker_id, const std::string& reason) = 0;
};

// For the event log, the audit and people. Must not call back.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  virtual void OnWorkerReady(int64_t worker_id, int64_t pid, int64_t step) = 0;
  virtual void OnWorkerLost(int64_t worker_id, const std::string& reason) = 0;
  virtual void OnCommit(const CommittedRange& range, int64_t step,
                        int64_t generation) = 0;
  // Every commit after `step` is void: the job was rolled back to that step.
  virtual void OnCutBack(int64_t step) = 0;
  // `records`: those that are new in the model.
  virtual void OnProgress(const v1::Progress& progress, int64_t records) = 0;
  virtual void OnWorld(const WorldChange& world) = 0;
  // A member that was behind has the model now.
  virtual void OnCaughtUp(int64_t worker_id, int64_t generation) {}
  // Nobody has the model, and what lost workers have left of it in memory is
  // not used.
  virtual void OnKeptGivenUp(int64_t step, const std::string& reason) {}
  // The first step that is known to be committed in a world.
  virtual void OnFirstStep(int64_t generation, int64_t step) = 0;
  virtual void OnCheckpoint(const v1::CheckpointDone& done) = 0;
  virtual void OnEvaluation(const EvaluationResult& result) = 0;
  // These workers, and no others, evaluate the model of `step` now; write a
  // checkpoint now.
  virtual void OnEvaluating(int64_t step, const std::vector<int64_t>& workers) {
  }
  virtual void OnSaving(const std::vector<int64_t>& workers) {}
  // Records of an evaluation or prediction task that is done.
  virtual void OnTaskDone(int64_t records) = 0;
  // The model is exported, and these tables are not in its file.
  virtual void OnExportedRows(const v1::ExportedRows& rows) {}
  // A task was quarantined.
  virtual void OnQuarantined(const QuarantinedRange& bad) = 0;
  // A change of the number of parameter servers is complete.
  virtual void OnServersScaled(int servers) = 0;
  virtual void OnPart(const PartChange& change) = 0;
  // What a worker or server reports about itself, for display only.
  virtual void OnTelemetry(absl::Time now, bool server, int64_t id,
                           const v1::Telemetry& telemetry) {}
  // What a worker says that the model consists of, when it is ready.
  virtual void OnModel(const v1::ModelSummary& model) {}
  virtual void OnHistograms(const v1::Histograms& histograms) {}
  // Anything else worth a line.
  virtual void OnMessage(const std::string& text) = 0;
};

}  // namespace elasticdl::master
