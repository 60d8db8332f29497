#include "event_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::master {
namespace {

using Json = nlohmann::ordered_json;

double Milliseconds(absl::Duration duration) {
  return absl::ToDoubleMicroseconds(duration) / 1000;
}

// It has the flags of the job: a new file is for its owner only. Errors are
// those of opening it.
void CreatePrivate(const std::string& path) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
}

}  // namespace

struct EventLog::Line {
  explicit Line(const char* event) : event(event) {}
  template <typename T>
  Line& Add(const char* key, T&& value) {
    fields[key] = std::forward<T>(value);
    return *this;
  }

  const char* event;
  Json fields = Json::object();
};

absl::StatusOr<std::unique_ptr<EventLog>> EventLog::Open(
    const std::vector<std::string>& paths, const Clock& clock) {
  std::vector<LineWriter> writers;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    CreatePrivate(path);
    ELASTICDL_ASSIGN_OR_RETURN(LineWriter writer, LineWriter::Open(path));
    writers.push_back(std::move(writer));
  }
  return std::unique_ptr<EventLog>(new EventLog(std::move(writers), clock));
}

EventLog::EventLog(std::vector<LineWriter> writers, const Clock& clock)
    : clock_(clock), writers_(std::move(writers)) {}

void EventLog::Write(const Line& line) {
  Json json;
  // Under the lock, so that times never go back from line to line.
  absl::Status error;
  std::string text;
  {
    MutexLock lock(mu_);
    json["time"] =
        static_cast<double>(absl::ToUnixMicros(clock_.WallNow())) / 1e6;
    json["event"] = line.event;
    json.update(line.fields);
    text = JsonText(json);
    for (LineWriter& writer : writers_) {
      const absl::Status status = writer.Append(text);
      if (!status.ok() && !std::exchange(failed_, true)) error = status;
    }
  }
  if (listener_) listener_(text);
  if (!error.ok()) LogError("event log is incomplete: ", error.message());
}

void EventLog::JobStart(const std::string& job, const std::string& command,
                        const std::vector<std::string>& flags) {
  Line line("job_start");
  line.Add("job", job).Add("command", command).Add("pid", getpid());
  if (!flags.empty()) line.Add("flags", flags);
  Write(line);
}

void EventLog::MasterRestarted(int64_t restarts, int signal) {
  Write(
      Line("master_restarted").Add("restarts", restarts).Add("signal", signal));
}

void EventLog::PodCreated(const std::string& pod, PodType type, int64_t id,
                          int64_t replaces, const std::string& reason) {
  Line line("pod_created");
  line.Add("pod", pod).Add("type", PodTypeName(type)).Add("id", id);
  if (replaces >= 0) line.Add("replaces", replaces);
  line.Add("reason", reason);
  Write(line);
}

void EventLog::PodStarted(const std::string& pod, PodType type, int64_t id,
                          pid_t pid, int64_t replaces,
                          const std::string& reason) {
  Line line("pod_started");
  line.Add("pod", pod).Add("type", PodTypeName(type)).Add("id", id);
  line.Add("pid", pid);
  if (replaces >= 0) line.Add("replaces", replaces);
  if (!reason.empty()) line.Add("reason", reason);
  Write(line);
}

void EventLog::PodEnded(const std::string& pod, int64_t id,
                        const std::string& reason, bool failure, bool asked) {
  Write(Line("pod_ended")
            .Add("pod", pod)
            .Add("id", id)
            .Add("reason", reason)
            .Add("failure", failure)
            .Add("asked", asked));
}

void EventLog::WorkerReady(int64_t worker_id) {
  Write(Line("worker_ready").Add("worker_id", worker_id));
}

void EventLog::WorkerLost(int64_t worker_id, const std::string& reason) {
  Write(Line("worker_lost").Add("worker_id", worker_id).Add("reason", reason));
}

void EventLog::Model(const Json& model) {
  Line line("model");
  line.fields = model;
  Write(line);
}

void EventLog::World(int64_t generation, const std::vector<int64_t>& members,
                     const std::string& cause, absl::Duration pause) {
  Write(Line("world")
            .Add("generation", generation)
            .Add("members", members)
            .Add("cause", cause)
            .Add("pause_ms", Milliseconds(pause)));
}

void EventLog::CaughtUp(int64_t worker_id, int64_t generation) {
  Write(Line("caught_up")
            .Add("worker_id", worker_id)
            .Add("generation", generation));
}

void EventLog::StateGivenUp(int64_t step, const std::string& reason) {
  Write(Line("state_given_up").Add("step", step).Add("reason", reason));
}

void EventLog::FirstStep(int64_t generation, int64_t step) {
  Write(Line("first_step").Add("generation", generation).Add("step", step));
}

void EventLog::Checkpoint(int64_t version, const std::string& path,
                          absl::Duration duration) {
  Write(Line("checkpoint")
            .Add("version", version)
            .Add("path", path)
            .Add("ms", Milliseconds(duration)));
}

void EventLog::CheckpointFailed(int64_t version, const std::string& path,
                                const absl::Status& error) {
  Write(Line("checkpoint")
            .Add("version", version)
            .Add("path", path)
            .Add("error", error.ToString()));
}

void EventLog::Evaluation(int64_t step,
                          const std::map<std::string, double>& metrics,
                          int64_t records, absl::Duration duration) {
  Json values = Json::object();
  for (const auto& [name, value] : metrics) values[name] = JsonNumber(value);
  Write(Line("evaluation")
            .Add("step", step)
            .Add("metrics", values)
            .Add("records", records)
            .Add("ms", Milliseconds(duration)));
}

void EventLog::Evaluating(int64_t step, const std::vector<int64_t>& workers) {
  Write(Line("evaluating").Add("step", step).Add("workers", workers));
}

void EventLog::Saving(const std::vector<int64_t>& workers) {
  Write(Line("saving").Add("workers", workers));
}

void EventLog::Silent(PodType type, int64_t id, const std::string& reason) {
  Write(Line("silent")
            .Add("type", PodTypeName(type))
            .Add("id", id)
            .Add("reason", reason));
}

void EventLog::Heard(PodType type, int64_t id) {
  Write(Line("heard").Add("type", PodTypeName(type)).Add("id", id));
}

void EventLog::Progress(const JobStatus& status) {
  Line line("progress");
  line.Add("step", status.step)
      .Add("epoch", status.epoch)
      .Add("num_epochs", status.num_epochs)
      .Add("records_done", status.records_done)
      .Add("records_total", status.records_total)
      .Add("records_in_flight", status.ledger.in_flight)
      .Add("records_returned", status.ledger.returned)
      .Add("records_set_aside", status.ledger.set_aside)
      .Add("records_per_s", JsonNumber(status.records_per_s))
      .Add("workers", status.workers)
      .Add("target_workers", status.target_workers);
  if (status.loss.has_value()) line.Add("loss", JsonNumber(*status.loss));
  if (status.learning_rate.has_value()) {
    line.Add("learning_rate", JsonNumber(*status.learning_rate));
  }
  if (status.step_time.has_value()) {
    Json times = {{"step_ms", JsonNumber(status.step_time->total * 1e3)}};
    for (size_t i = 0; i < status.step_time->seconds.size(); ++i) {
      const auto kind = static_cast<trace::Kind>(i);
      if (!trace::IsStepKind(kind)) continue;
      times[absl::StrCat(trace::KindField(kind), "_ms")] =
          JsonNumber(status.step_time->seconds[i] * 1e3);
    }
    line.Add("step_time", times);
  }
  Write(line);
}

void EventLog::TaskQuarantined(const std::string& shard, int64_t begin,
                               int64_t end, int64_t failures,
                               const std::string& reason) {
  Write(Line("task_quarantined")
            .Add("shard", shard)
            .Add("begin", begin)
            .Add("end", end)
            .Add("failures", failures)
            .Add("reason", reason));
}

void EventLog::Part(const PartChange& change) {
  const char* name = "ps_takeover";
  if (change.kind == PartChange::Kind::kCurrent) name = "ps_backup_current";
  if (change.kind == PartChange::Kind::kBackupLost) name = "ps_backup_lost";
  Line line(name);
  line.Add("part", change.part).Add("server", change.server);
  if (change.backup >= 0) line.Add("backup", change.backup);
  Write(line.Add("term", change.term));
}

void EventLog::Scaled(int64_t from, int64_t to) {
  Write(Line("scaled").Add("from", from).Add("to", to));
}

void EventLog::ScalingServers(int64_t from, int64_t to) {
  Write(Line("ps_scaling").Add("from", from).Add("to", to));
}

void EventLog::ServerNearlyFull(int64_t server, int64_t bytes, int64_t limit) {
  Write(Line("ps_nearly_full")
            .Add("server", server)
            .Add("bytes", bytes)
            .Add("limit", limit));
}

void EventLog::ExportedRows(const std::string& folder, int64_t tables,
                            int64_t files, int64_t rows) {
  Write(Line("exported_rows")
            .Add("folder", folder)
            .Add("tables", tables)
            .Add("files", files)
            .Add("rows", rows));
}

void EventLog::ServersScaled(int64_t servers) {
  Write(Line("ps_scaled").Add("servers", servers));
}

void EventLog::JobEnd(const std::string& state, const std::string& reason,
                      int exit_code, int64_t step) {
  Write(Line("job_end")
            .Add("state", state)
            .Add("reason", reason)
            .Add("exit_code", exit_code)
            .Add("step", step));
}

absl::Status CutAudit(const std::string& path, int64_t bytes) {
  struct stat info;
  if (path.empty()) return absl::OkStatus();
  if (stat(path.c_str(), &info) != 0) {
    return Annotate(ErrnoToStatus(errno, absl::StrCat("stat ", path)),
                    "what was committed before the restart is not in it");
  }
  if (!S_ISREG(info.st_mode) || info.st_size == bytes) return absl::OkStatus();
  if (info.st_size < bytes) {
    return absl::DataLossError(absl::StrCat(path, " has ", info.st_size,
                                            " bytes; the master before ",
                                            "had written ", bytes));
  }
  if (truncate(path.c_str(), bytes) == 0) return absl::OkStatus();
  return ErrnoToStatus(errno, absl::StrCat("truncate ", path));
}

absl::StatusOr<std::unique_ptr<LedgerAudit>> LedgerAudit::Open(
    const std::string& path) {
  ELASTICDL_ASSIGN_OR_RETURN(LineWriter writer, LineWriter::Open(path));
  return std::unique_ptr<LedgerAudit>(new LedgerAudit(std::move(writer)));
}

absl::Status LedgerAudit::Append(const std::vector<AuditedRange>& ranges) {
  if (ranges.empty()) return absl::OkStatus();
  std::string text;
  for (const AuditedRange& range : ranges) {
    absl::StrAppend(
        &text, text.empty() ? "" : "\n", "{\"epoch\":", range.epoch,
        ",\"shard\":", JsonText(Json(range.shard)), ",\"begin\":", range.begin,
        ",\"end\":", range.end, ",\"worker_id\":", range.worker_id,
        ",\"generation\":", range.generation, ",\"step\":", range.step, "}");
  }
  MutexLock lock(mu_);
  return writer_.Append(text);
}

absl::Status LedgerAudit::AppendCutBack(int64_t step) {
  MutexLock lock(mu_);
  return writer_.Append(absl::StrCat("{\"cut_back\":", step, "}"));
}

}  // namespace elasticdl::master
