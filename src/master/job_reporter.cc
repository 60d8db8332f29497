#include "job_reporter.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <ios>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"
#include "model_summary.h"

namespace elasticdl::master {
namespace {

// The page of a restarted master goes back so many bytes of the event log:
// workers wait for the master, so it takes a fraction of a second at most.
constexpr std::streamoff kMostEvents = 8 << 20;

std::unique_ptr<ProgressDisplay> MakeDisplay(const MasterOptions& options) {
  ProgressDisplay::Options display;
  display.fd = STDOUT_FILENO;
  display.mode = ProgressDisplay::DetectMode(STDOUT_FILENO, options.terminal);
  if (options.display == "none" || options.display == "log") {
    display.mode = ProgressDisplay::Mode::kNone;
  }
  if (options.display == "plain") display.mode = ProgressDisplay::Mode::kPlain;
  if (options.display == "live") display.mode = ProgressDisplay::Mode::kLive;
  if (options.display == "json") {
    display.mode = ProgressDisplay::Mode::kJson;
    display.plain_interval = absl::Seconds(1);
  }
  return std::make_unique<ProgressDisplay>(display);
}

std::string Describe(const std::map<std::string, double>& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    absl::StrAppendFormat(&text, "%s%s=%.6g", text.empty() ? "" : " ", name,
                          value);
  }
  return text;
}

// Bytes from outside: arrays of different lengths and unknown kinds are left
// out.
std::vector<trace::Span> SpansOf(const v1::TraceSpans& message) {
  std::vector<trace::Span> spans;
  const int size = std::min({message.kinds_size(), message.begins_size(),
                             message.durations_size(), message.numbers_size()});
  spans.reserve(static_cast<size_t>(size));
  int64_t begin = 0;
  for (int i = 0; i < size; ++i) {
    begin += message.begins(i);
    const int32_t kind = message.kinds(i);
    if (kind < 0 || kind >= static_cast<int32_t>(trace::kKinds)) continue;
    spans.push_back({static_cast<trace::Kind>(kind), begin,
                     begin + std::max<int64_t>(0, message.durations(i)),
                     message.numbers(i)});
  }
  return spans;
}

// A browser shows so much without effort.
constexpr std::streamoff kLogBytes = 64 << 10;

absl::StatusOr<std::string> ReadLogEnd(const jobdir::JobDir& jobdir,
                                       const std::string& pod) {
  const bool is_name = !pod.empty() && pod[0] != '.' &&
                       !absl::StrContains(pod, '/') &&
                       !absl::StrContains(pod, '\0');
  std::ifstream file;
  if (is_name) file.open(jobdir.LogFile(pod), std::ios::ate | std::ios::binary);
  if (!is_name || !file.is_open()) {
    return absl::NotFoundError(
        "no log of that pod is on this machine; elasticdl logs finds those on "
        "a cluster");
  }
  const std::streamoff size = file.tellg();
  const std::streamoff skipped = std::max<std::streamoff>(0, size - kLogBytes);
  file.seekg(skipped);
  std::string line;
  if (skipped > 0) std::getline(file, line);  // a part of one
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

JobReporter::JobReporter(const MasterOptions& options)
    : options_(options), rate_(Phase() == "train") {}
JobReporter::~JobReporter() = default;

absl::StatusOr<std::unique_ptr<JobReporter>> JobReporter::Create(
    const MasterOptions& options, const jobdir::JobDir& jobdir,
    const Commands& commands, bool resumed) {
  std::unique_ptr<JobReporter> reporter(new JobReporter(options));
  ELASTICDL_ASSIGN_OR_RETURN(
      reporter->events_,
      EventLog::Open({jobdir.EventsFile(), options.event_log}));
  ELASTICDL_ASSIGN_OR_RETURN(reporter->audit_,
                             LedgerAudit::Open(options.ledger_audit));
  ELASTICDL_ASSIGN_OR_RETURN(
      reporter->tensorboard_,
      TensorBoard::Open(options.tensorboard_log_dir, options.job.job_name(),
                        Clock::Real().WallNow()));
  ELASTICDL_RETURN_IF_ERROR(reporter->OpenTimeline(resumed));
  // Of a job that goes on after its master was restarted.
  reporter->ReadEvents(jobdir.EventsFile());
  reporter->events_->SetListener(
      [board = &reporter->board_](const std::string& line) {
        board->AddEvent(line);
      });
  reporter->display_ = MakeDisplay(options);
  HttpStatus::Options http;
  http.token = options.token;
  http.port = options.http_port;
  http.reserved_port = options.parent.has_value();
  // In a cluster the page is reached through the API server.
  if (options.cluster.has_value()) http.host = "0.0.0.0";
  HttpStatus::Commands http_commands;
  http_commands.stop = [stop = commands.stop] {
    stop("asked by elasticdl stop");
    return absl::OkStatus();
  };
  http_commands.scale = commands.scale;
  http_commands.log = [jobdir](const std::string& pod) {
    return ReadLogEnd(jobdir, pod);
  };
  ELASTICDL_ASSIGN_OR_RETURN(
      reporter->http_,
      HttpStatus::Start(http, reporter->board_, std::move(http_commands)));
  return reporter;
}

absl::Status JobReporter::Publish(const jobdir::JobDir& jobdir) const {
  return jobdir.WriteHttpAddress(http_->address());
}

void JobReporter::ReadEvents(const std::string& path) {
  std::ifstream file(path, std::ios::ate | std::ios::binary);
  const std::streamoff size = file.tellg();
  if (size <= 0) return;
  const std::streamoff skipped =
      std::max<std::streamoff>(0, size - kMostEvents);
  file.seekg(skipped);
  std::string line;
  if (skipped > 0) std::getline(file, line);  // a part of one
  while (std::getline(file, line)) board_.AddEvent(line);
}

void JobReporter::Say(const std::string& text) {
  // What was saved before comes before it.
  if (const std::string line = checkpoint_lines_.Rest(); !line.empty()) {
    LogInfo(line);
  }
  if (options_.display == "log") return LogInfo(text);
  // In a pod, log and display are one stream.
  if (!options_.cluster.has_value()) LogInfo(text);
  display_->Message(text, Clock::Real().Now());
}

void JobReporter::JobStarted(int64_t num_workers, int64_t num_servers) {
  target_workers_ = num_workers;
  status_.target_servers = num_servers;
  SetLogJob(options_.job.job_name());
  status_.state = "running";
  started_ = Clock::Real().Now();
  std::string configuration;
  for (const std::string& flag : options_.shown_flags) {
    absl::StrAppend(&configuration, "    ", flag, "\n");
  }
  CheckTensorBoard(tensorboard_->Text("configuration", configuration,
                                      Clock::Real().WallNow()));
  events_->JobStart(options_.job.job_name(),
                    options_.job_command.empty() ? Phase() : "command",
                    options_.shown_flags);
}

void JobReporter::MasterRestarted(int64_t restarts, int signal) {
  MarkTimeline("the master was started again", absl::StrCat("signal ", signal));
  events_->MasterRestarted(restarts, signal);
}

void JobReporter::PodCreated(const std::string& pod, PodType type, int64_t id,
                             int64_t replaces, const std::string& reason) {
  events_->PodCreated(pod, type, id, replaces, reason);
}

void JobReporter::PodStarted(const std::string& pod, PodType type, int64_t id,
                             pid_t pid) {
  events_->PodStarted(pod, type, id, pid);
}

void JobReporter::PodEnded(const std::string& pod, int64_t id,
                           const std::string& reason, bool failure,
                           bool asked) {
  events_->PodEnded(pod, id, reason, failure, asked);
}

void JobReporter::OnWorkerReady(int64_t worker_id, int64_t pid, int64_t step) {
  // With the first one, the start is over; its time is told before that.
  if (status_.workers == 0) Activity("");
  events_->WorkerReady(worker_id);
  Say(absl::StrCat("worker ", worker_id, " is ready (pid ", pid,
                   step > 0 ? absl::StrCat(", at step ", step) : "", ")"));
}

void JobReporter::OnWorkerLost(int64_t worker_id, const std::string& reason) {
  MarkTimeline(absl::StrCat("worker ", worker_id, " is lost"), reason);
  telemetry_.Remove({/*server=*/false, worker_id});
  events_->WorkerLost(worker_id, reason);
  Say(absl::StrCat("worker ", worker_id, " is lost: ", reason));
}

void JobReporter::OnCommit(const CommittedRange& range, int64_t step,
                           int64_t generation) {
  AuditedRange audited;
  audited.epoch = range.epoch;
  audited.shard = range.shard;
  audited.begin = range.begin;
  audited.end = range.end;
  audited.worker_id = range.worker_id;
  audited.generation = generation;
  audited.step = step;
  CheckAudit(audit_->Append({audited}));
}

void JobReporter::OnCutBack(int64_t step) {
  CheckAudit(audit_->AppendCutBack(step));
  CheckTensorBoard(tensorboard_->CutBack(step, Clock::Real().WallNow()));
}

void JobReporter::CheckAudit(const absl::Status& status) {
  if (status.ok() || audit_failed_) return;
  audit_failed_ = true;
  Say(absl::StrCat("--ledger_audit is incomplete from here on: ",
                   status.message()));
}

void JobReporter::CheckTensorBoard(const absl::Status& status) {
  if (status.ok() || tensorboard_failed_) return;
  tensorboard_failed_ = true;
  Say(absl::StrCat("--tensorboard_log_dir is incomplete from here on: ",
                   status.message()));
}

absl::Status JobReporter::OpenTimeline(bool resumed) {
  const std::string& job = options_.job.job_name();
  absl::StatusOr<std::unique_ptr<trace::TimelineFile>> file =
      trace::TimelineFile::Open(options_.timeline, job,
                                resumed
                                    ? trace::TimelineFile::Existing::kContinue
                                    : trace::TimelineFile::Existing::kReplace);
  // A job that has trained for days does not end for want of its timeline.
  if (!file.ok() && resumed) {
    LogWarning(file.status().message());
    file = trace::TimelineFile::Open("", job);
  }
  ELASTICDL_RETURN_IF_ERROR(file.status());
  timeline_ = *std::move(file);
  return absl::OkStatus();
}

void JobReporter::CheckTimeline(const absl::Status& status) {
  if (status.ok() || timeline_failed_) return;
  timeline_failed_ = true;
  Say(std::string(status.message()));
}

void JobReporter::MarkTimeline(const std::string& name,
                               const std::string& detail) {
  CheckTimeline(
      timeline_->Mark(name, absl::ToUnixNanos(Clock::Real().Now()), detail));
}

void JobReporter::OnTelemetry(absl::Time now, bool server, int64_t id,
                              const v1::Telemetry& telemetry) {
  telemetry_.Add(now, {server, id}, telemetry);
  if (server) {
    CheckServerMemory(id, telemetry.limited_bytes(), telemetry.limit_bytes());
  }
  if (server || !telemetry.has_spans() || options_.timeline.empty()) return;
  CheckTimeline(timeline_->Add(id, SpansOf(telemetry.spans()),
                               telemetry.spans().clock_offset(),
                               telemetry.spans().dropped()));
}

void JobReporter::OnModel(const v1::ModelSummary& model) {
  // All workers build the same one.
  if (std::exchange(model_told_, true)) return;
  events_->Model(ModelToJson(model));
  if (!options_.model_summary) return;
  for (const std::string& line : ModelToLines(model)) Say(line);
}

void JobReporter::OnHistograms(const v1::Histograms& histograms) {
  CheckTensorBoard(
      tensorboard_->Histograms(histograms, Clock::Real().WallNow()));
}

void JobReporter::CheckServerMemory(int64_t server, int64_t bytes,
                                    int64_t limit) {
  // Again only if it was well below in between: buckets have moved away.
  if (bytes < limit / 5 * 4) nearly_full_.erase(server);
  if (limit == 0 || bytes <= limit - limit / 10 ||
      !nearly_full_.insert(server).second) {
    return;
  }
  events_->ServerNearlyFull(server, bytes, limit);
  Say(absl::StrCat(
      "server ", server, " uses ", bytes, " of the ", limit,
      " bytes that it may use: pushes that add rows are slowed down, and at "
      "the limit the job fails; add servers (elasticdl scale --job_name=",
      options_.job.job_name(),
      " --num_ps_pods=N), or start it again with a higher --ps_memory_limit or "
      "with --embedding_max_rows"));
}

void JobReporter::OnWorld(const WorldChange& world) {
  // It is connected and has the model.
  Activity("");
  status_.generation = world.generation;
  if (world.pause > absl::ZeroDuration()) telemetry_.AddPause(world.pause);
  events_->World(world.generation, world.members, world.cause, world.pause);
  std::string text =
      absl::StrCat("generation ", world.generation, ": ",
                   Count(static_cast<int64_t>(world.members.size()), "worker"),
                   " (", absl::StrJoin(world.members, ", "), ")");
  if (!world.cause.empty()) absl::StrAppend(&text, ", ", world.cause);
  if (world.pause > absl::ZeroDuration()) {
    absl::StrAppend(&text, ", paused for ",
                    absl::FormatDuration(
                        absl::Trunc(world.pause, absl::Microseconds(100))));
  }
  MarkTimeline(absl::StrCat("world ", world.generation), text);
  Say(text);
}

void JobReporter::OnCaughtUp(int64_t worker_id, int64_t generation) {
  events_->CaughtUp(worker_id, generation);
  Say(absl::StrCat("worker ", worker_id, " has the model and trains"));
}

void JobReporter::OnKeptGivenUp(int64_t step, const std::string& reason) {
  events_->StateGivenUp(step, reason);
}

void JobReporter::OnFirstStep(int64_t generation, int64_t step) {
  events_->FirstStep(generation, step);
}

void JobReporter::Scaled(int64_t num_workers) {
  events_->Scaled(target_workers_, num_workers);
  Say(absl::StrCat("scaling from ", target_workers_, " to ",
                   Count(num_workers, "worker")));
  target_workers_ = num_workers;
}

void JobReporter::ScalingServers(int64_t from, int64_t to) {
  status_.target_servers = to;
  events_->ScalingServers(from, to);
  Say(absl::StrCat("scaling from ", from, " to ",
                   Count(to, "parameter server")));
}

void JobReporter::OnServersScaled(int servers) {
  status_.target_servers = servers;
  events_->ServersScaled(servers);
  Say(absl::StrCat("the model is on ", Count(servers, "parameter server")));
}

void JobReporter::OnProgress(const v1::Progress& progress, int64_t records) {
  const absl::Time now = Clock::Real().Now();
  rate_.OnTrained(now, records);
  status_.loss = progress.loss();
  status_.learning_rate = progress.learning_rate();
  TensorBoard::TrainingPoint point;
  point.step = progress.step();
  point.loss = progress.loss();
  point.learning_rate = progress.learning_rate();
  point.records_per_s = rate_.PerSecond(now);
  CheckTensorBoard(tensorboard_->Training(point, Clock::Real().WallNow()));
}

void JobReporter::OnCheckpoint(const v1::CheckpointDone& done) {
  const absl::Duration duration = absl::Seconds(done.seconds());
  if (done.error().empty()) {
    events_->Checkpoint(done.step(), done.path(), duration);
    const std::string line =
        checkpoint_lines_.Saved(Clock::Real().Now(), done.path(), duration);
    if (!line.empty()) LogInfo(line);
    return;
  }
  events_->CheckpointFailed(done.step(), options_.job.checkpoint_dir(),
                            absl::UnknownError(done.error()));
  Say(absl::StrCat("checkpoint of step ", done.step(),
                   " failed: ", done.error()));
}

void JobReporter::OnEvaluation(const EvaluationResult& result) {
  if (!result.status.ok()) return;
  events_->Evaluation(result.version, result.metrics, result.records,
                      result.duration);
  CheckTensorBoard(tensorboard_->Evaluation(result.version, result.metrics,
                                            Clock::Real().WallNow()));
  status_.evaluations.push_back({result.version, result.metrics});
  if (status_.evaluations.size() > JobStatus::kMaxEvaluations) {
    status_.evaluations.erase(status_.evaluations.begin());
  }
  Say(absl::StrCat(
      "evaluation at step ", result.version, ": ", Describe(result.metrics),
      " (", Count(result.records, "record"), " in ",
      absl::FormatDuration(absl::Trunc(result.duration, absl::Milliseconds(1))),
      ")"));
  if (result.skipped_records > 0) {
    Say(absl::StrCat("not in it: ", Count(result.skipped_records, "record"),
                     " quarantined after failures"));
  }
}

void JobReporter::OnQuarantined(const QuarantinedRange& bad) {
  const v1::LedgerRange& range = bad.range;
  events_->TaskQuarantined(range.shard(), range.begin(), range.end(),
                           bad.failures, bad.last_error);
  Say(absl::StrCat("task quarantined after ", bad.failures,
                   " failures: records ", range.begin(), " to ", range.end(),
                   " of ", range.shard(), " (", bad.last_error, ")"));
}

void JobReporter::OnPart(const PartChange& change) {
  events_->Part(change);
  if (change.kind != PartChange::Kind::kCurrent) {
    backup_missing_ = true;
    return Say(change.text);
  }
  // That the first backups are complete is nothing that somebody waits for.
  if (change.all_current && std::exchange(backup_missing_, false)) {
    Say("all parts of the model have a backup again");
  }
}

void JobReporter::OnExportedRows(const v1::ExportedRows& rows) {
  events_->ExportedRows(rows.folder(), rows.tables(), rows.files(),
                        rows.rows());
  Say(absl::StrCat("the rows of ", Count(rows.tables(), "table"),
                   " without input_dim are in files of their own, not in "
                   "model.pt: ",
                   Count(rows.rows(), "row"), " in ",
                   Count(rows.files(), "file"), " of ", rows.folder(),
                   ", listed in index.json"));
}

void JobReporter::OnTaskDone(int64_t records) {
  rate_.OnTaskDone(Clock::Real().Now(), records);
}

void JobReporter::OnMessage(const std::string& text) { Say(text); }

void JobReporter::JobEnded(int exit_code, const std::string& message) {
  status_.state = exit_code == 0                ? "succeeded"
                  : status_.state == "stopping" ? "stopped"
                                                : "failed";
  status_.reason = message;
  status_.step_time = telemetry_.WholeJob();
  status_.slowest.reset();
  const absl::Time now = Clock::Real().Now();
  board_.Set(status_);
  LogProgress(now, /*last=*/true);
  if (const std::string line = checkpoint_lines_.Rest(); !line.empty()) {
    LogInfo(line);
  }
  CheckTensorBoard(tensorboard_->Finish(Clock::Real().WallNow()));
  CheckTimeline(timeline_->Finish());
  display_->Finish(now);
  const std::string end = absl::StrCat("job ", options_.job.job_name(), " ",
                                       status_.state, ": ", message);
  // The client tells a failure; a master that was started by hand has its log
  // on the terminal.
  if (exit_code == 0) {
    Say(end);
  } else {
    LogError(end);
  }
  events_->JobEnd(status_.state, message, exit_code, status_.step);
}

void JobReporter::EndPage() {
  http_->ShowEnd();
  board_.Close();
  http_->Stop();
}

}  // namespace elasticdl::master
