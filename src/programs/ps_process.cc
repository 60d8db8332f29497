#include "ps_process.h"

#include <unistd.h>

#include <limits>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/life_sign.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/trace/process_usage.h"

namespace elasticdl::programs {
namespace {

// How long the last messages may take to leave.
constexpr absl::Duration kCloseTimeout = absl::Seconds(5);
// How often the master hears what a server has and does.
constexpr absl::Duration kUsageInterval = absl::Seconds(1);

rendezvous::StreamClient::Options StreamOptions(const PsOptions& options) {
  rendezvous::StreamClient::Options stream;
  stream.address = options.master_addr;
  stream.token = options.token;
  stream.connect_timeout = options.connect_timeout;
  return stream;
}

// Who is reached by the loopback listens nowhere else.
std::string ListenHost(const std::string& host) {
  if (host == "localhost" || absl::StartsWith(host, "127.")) return host;
  return absl::StrContains(host, ':') ? "::" : "0.0.0.0";
}

}  // namespace

std::string PsLogDir(const std::string& log_root, const std::string& run,
                     int server, int part) {
  return JoinPath(JoinPath(log_root, run),
                  part == server ? absl::StrCat("ps-", server)
                                 : absl::StrCat("ps-", part, "-on-", server));
}

PsProcess::PsProcess(PsOptions options)
    : options_(std::move(options)),
      master_(StreamOptions(options_)),
      commits_(std::numeric_limits<size_t>::max()) {}

int PsProcess::Run() {
  const absl::StatusOr<v1::Welcome> welcome =
      master_.Attach(Greeting(), options_.connect_timeout);
  if (!welcome.ok()) {
    if (stopping()) return 0;
    LogError(welcome.status().message());
    return absl::IsUnimplemented(welcome.status()) ||
                   absl::IsFailedPrecondition(welcome.status())
               ? kPsExitFailed
               : kPsExitMasterLost;
  }
  SetLogJob(welcome->job().job_name());
  LogInfo("server ", options_.server, " of job ", welcome->job().job_name());
  job_ = welcome->job();
  backups_ = job_.ps_backup();
  servers_ = welcome->servers();
  absl::Status status = InitFailpoints(job_.failpoints(), options_.server);
  const std::vector<int> wanted = PartsIn(welcome->hosting());
  if (status.ok()) {
    if (backups_) RemoveOldLogs(wanted);
    status = Host(wanted).status();
  }
  int code = kPsExitFailed;
  Thread commits;
  if (status.ok()) {
    if (backups_) commits = Thread("commits", [this] { ApplyCommits(); });
    Thread usage("usage", [this] { TellUsage(); });
    const absl::StatusOr<int> ended = Converse();
    {
      MutexLock lock(mu_);
      talked_ = true;
    }
    stopped_.NotifyAll();
    usage.Join();
    status = ended.status();
    code = ended.value_or(kPsExitFailed);
    commits_.Close();
  }
  // One that is being applied may wait for a backup until then.
  for (const PartPtr& part : Parts()) part->Stop();
  for (const PartPtr& part : Parts()) status.Update(part->Wait());
  master_.End(kCloseTimeout);
  if (status.ok()) return code;
  LogError("server ", options_.server, ": ", status.message());
  return kPsExitFailed;
}

void PsProcess::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  stopped_.NotifyAll();
  master_.End(kCloseTimeout);
}

bool PsProcess::stopping() const {
  MutexLock lock(mu_);
  return stopping_;
}

v1::WorkerMessage PsProcess::Greeting() const {
  v1::WorkerMessage message;
  v1::ServerHello& hello = *message.mutable_server_hello();
  hello.set_server(options_.server);
  hello.set_pid(getpid());
  if (const auto sign = OwnLifeSign(); sign.ok()) {
    hello.set_life_sign_fd(sign->fd);
    hello.set_life_sign_id(sign->id);
  }
  return message;
}

// No change of a copy may overtake what was true before it, or come behind.
void PsProcess::SayHello(const std::vector<PartPtr>& parts) {
  MutexLock lock(telling_);
  master_.Send(Hello(parts));
}

v1::WorkerMessage PsProcess::Hello(const std::vector<PartPtr>& parts) const {
  v1::WorkerMessage message = Greeting();
  v1::ServerHello& hello = *message.mutable_server_hello();
  for (const PartPtr& part : parts) {
    if (backups_) {
      v1::PsCopy& copy = *hello.add_copies();
      copy = part->server().Describe();
      copy.set_address(part->address());
    } else {
      hello.set_address(part->address());
      hello.set_version(part->server().version());
    }
  }
  return message;
}

// ---- parts of the model ----

std::vector<int> PsProcess::PartsIn(const v1::PsHosting& hosting) const {
  if (!backups_) return {options_.server};
  return {hosting.parts().begin(), hosting.parts().end()};
}

PsProcess::PartPtr PsProcess::Find(int part) const {
  MutexLock lock(mu_);
  const auto found = parts_.find(part);
  return found == parts_.end() ? nullptr : found->second;
}

std::vector<PsProcess::PartPtr> PsProcess::Parts() const {
  MutexLock lock(mu_);
  std::vector<PartPtr> parts;
  for (const auto& [number, part] : parts_) parts.push_back(part);
  return parts;
}

absl::StatusOr<std::vector<PsProcess::PartPtr>> PsProcess::Host(
    const std::vector<int>& wanted) {
  if (job_.run().empty()) return absl::InternalError("the master names no run");
  for (const PartPtr& part : Parts()) {
    if (!absl::c_linear_search(wanted, part->part())) GiveUp(part->part());
  }
  std::vector<PartPtr> started;
  for (const int number : wanted) {
    if (Find(number) != nullptr) continue;
    ELASTICDL_ASSIGN_OR_RETURN(PartPtr part, StartPart(number));
    started.push_back(part);
    MutexLock lock(mu_);
    parts_[number] = std::move(part);
  }
  return started;
}

void PsProcess::GiveUp(int number) {
  PartPtr part;
  {
    MutexLock lock(mu_);
    part = std::move(parts_[number]);
    parts_.erase(number);
  }
  LogInfo("gives its copy of part ", number, " up");
  part->Stop();
  part->AwaitApply();
  const std::string log_dir = part->log_dir();
  part.reset();
  const absl::Status removed = RemoveTree(log_dir);
  if (!removed.ok()) LogWarning("an old log: ", removed.message());
}

void PsProcess::RemoveOldLogs(const std::vector<int>& wanted) const {
  const std::string dir = JoinPath(options_.log_root, job_.run());
  const auto names = ListDirectory(dir);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!absl::EndsWith(name, absl::StrCat("-on-", options_.server))) continue;
    const bool used = absl::c_any_of(wanted, [&](int part) {
      return JoinPath(dir, name) ==
             PsLogDir(options_.log_root, job_.run(), options_.server, part);
    });
    if (!used) RemoveTree(JoinPath(dir, name)).IgnoreError();
  }
}

// Each copy has a port of its own: who dials must know whom it reaches.
uint16_t PsProcess::PortFor(int part) const {
  if (options_.port == 0 || part == options_.server) return options_.port;
  uint16_t port = options_.port;
  bool used = true;
  while (used) {
    ++port;
    used = absl::c_any_of(
        Parts(), [&](const PartPtr& other) { return other->port() == port; });
  }
  return port;
}

absl::StatusOr<PsProcess::PartPtr> PsProcess::StartPart(int part) {
  HostedPart::Options options;
  options.host = options_.host;
  options.servers = servers_;
  options.send = [this](v1::WorkerMessage message) {
    master_.Send(std::move(message));
  };
  // A server that cannot go on ends the conversation.
  options.ended = [this] { Stop(); };
  ps::ServerOptions& server = options.server;
  server.server = part;
  server.address = {ListenHost(options_.host), PortFor(part)};
  server.secret = options_.token;
  server.log_dir =
      PsLogDir(options_.log_root, job_.run(), options_.server, part);
  server.memory_limit = options_.memory_limit;
  // The process has two copies.
  if (backups_) server.memory_limit /= 2;
  if (options_.snapshot_bytes > 0) {
    server.snapshot_bytes = options_.snapshot_bytes;
  }
  if (!options_.audit.empty()) {
    server.audit = absl::StrCat(options_.audit, ".", part);
    server.run = job_.run();
    // Another server has the other copy.
    if (part != options_.server) {
      absl::StrAppend(&server.audit, "-on-", options_.server);
    }
  }
  server.replicated = backups_;
  server.tell = [this](const v1::PsPartState& state) {
    v1::WorkerMessage message;
    *message.mutable_part_state() = state;
    MutexLock lock(telling_);
    master_.Send(std::move(message));
  };
  ELASTICDL_ASSIGN_OR_RETURN(PartPtr hosted, HostedPart::Start(options));
  LogInfo("version ", hosted->server().version(),
          backups_ ? absl::StrCat(" of part ", part) : "", ", for workers at ",
          hosted->address());
  return hosted;
}

// ---- the conversation ----

absl::StatusOr<int> PsProcess::Converse() {
  SayHello(Parts());
  while (true) {
    while (auto message = master_.Receive(absl::InfiniteDuration())) {
      if (message->has_stop()) {
        LogInfo("the master says stop: ", message->stop().reason());
        return message->stop().exit_code();
      }
      ELASTICDL_RETURN_IF_ERROR(Handle(*std::move(message)));
    }
    if (stopping()) return 0;
    const absl::StatusOr<v1::Welcome> back = AttachAgain();
    if (stopping()) return 0;
    if (!back.ok()) {
      LogError("no master: ", back.status().message());
      return kPsExitMasterLost;
    }
    LogInfo("the master is back");
    servers_ = back->servers();
    for (const PartPtr& part : Parts()) part->SetServers(servers_);
    ELASTICDL_RETURN_IF_ERROR(Host(PartsIn(back->hosting())).status());
    // Only now: workers may have pushed while the master was away, and the
    // master knows how much the server must have.
    SayHello(Parts());
  }
}

absl::Status PsProcess::Handle(v1::MasterMessage message) {
  if (message.has_servers()) {
    servers_ = message.servers();
    for (const PartPtr& part : Parts()) part->SetServers(servers_);
  }
  if (message.has_hosting() && backups_) {
    ELASTICDL_ASSIGN_OR_RETURN(const std::vector<PartPtr> started,
                               Host(PartsIn(message.hosting())));
    if (!started.empty()) SayHello(started);
  }
  if (message.has_commit() && backups_) {
    commits_.Push(std::move(message));
    return absl::OkStatus();
  }
  if (message.has_commit()) Commit(message);
  const int number = message.has_assignment() ? message.assignment().part()
                     : backups_               ? message.part()
                                              : options_.server;
  const PartPtr part = Find(number);
  if (part == nullptr) return absl::OkStatus();
  if (message.has_move_buckets()) {
    part->Move(std::move(*message.mutable_move_buckets()));
  }
  if (message.has_assignment() && backups_) part->Assign(message.assignment());
  return absl::OkStatus();
}

absl::StatusOr<v1::Welcome> PsProcess::AttachAgain() {
  const absl::Duration patience = absl::Seconds(job_.master_timeout_seconds());
  const absl::Status end = master_.status();
  // Only a master that died may come back.
  if (!absl::IsUnavailable(end) || patience <= absl::ZeroDuration()) {
    return end.ok() ? absl::UnavailableError("the stream has ended") : end;
  }
  LogWarning("lost the master (", end.message(), "); waiting up to ",
             absl::FormatDuration(patience), " for the next");
  // What copies are to each other may change until there is a master.
  ELASTICDL_ASSIGN_OR_RETURN(v1::Welcome again,
                             master_.Attach(Greeting(), patience));
  if (again.job().run() == job_.run()) return again;
  return absl::FailedPreconditionError(
      "another run of the job has begun, which needs other values");
}

void PsProcess::TellUsage() {
  trace::ProcessUsage last = trace::ReadProcessUsage();
  absl::Time since = Clock::Real().Now();
  while (true) {
    {
      MutexLock lock(mu_);
      const absl::Time until = since + kUsageInterval;
      while (!stopping_ && !talked_ && Clock::Real().Now() < until) {
        stopped_.WaitFor(mu_, until - Clock::Real().Now());
      }
      if (stopping_ || talked_) return;
    }
    const trace::ProcessUsage usage = trace::ReadProcessUsage();
    const absl::Time now = Clock::Real().Now();
    v1::WorkerMessage message;
    v1::Telemetry& telemetry = *message.mutable_telemetry();
    telemetry.set_seconds(absl::ToDoubleSeconds(now - since));
    telemetry.set_cpu_seconds(usage.cpu_seconds - last.cpu_seconds);
    telemetry.set_memory_bytes(usage.memory_bytes);
    for (const PartPtr& part : Parts()) {
      const ps::Server::Stats stats = part->server().stats();
      telemetry.set_rows(telemetry.rows() + stats.rows);
      telemetry.set_model_bytes(telemetry.model_bytes() + stats.bytes);
      telemetry.set_pulls(telemetry.pulls() + stats.pulls);
      telemetry.set_pushes(telemetry.pushes() + stats.pushes);
      // All parts have the same limit.
      telemetry.set_limit_bytes(stats.limit_bytes);
      (*telemetry.mutable_part_bytes())[part->part()] = stats.limited_bytes;
      telemetry.set_limited_bytes(
          std::max(telemetry.limited_bytes(), stats.limited_bytes));
    }
    since = now;
    last = usage;
    master_.Send(std::move(message));
  }
}

void PsProcess::ApplyCommits() {
  while (const auto message = commits_.Pop()) Commit(*message);
}

void PsProcess::Commit(const v1::MasterMessage& message) {
  const v1::PsCommit& commit = message.commit();
  const PartPtr part = Find(backups_ ? message.part() : options_.server);
  if (part == nullptr) return;
  v1::PsEntry entry;
  *entry.mutable_commit() = commit;
  const absl::Status done = part->Apply(entry);
  // Another copy has taken over, and the master tells it: or this process ends.
  if (backups_ && absl::IsUnavailable(done)) return;
  v1::WorkerMessage answer;
  v1::ServerCommitted& committed = *answer.mutable_server_committed();
  committed.set_version(commit.version());
  committed.set_part(message.part());
  // It may be said again after a restart of either side.
  if (!done.ok() && !absl::IsAlreadyExists(done)) {
    LogWarning("version ", commit.version(), ": ", done.message());
    committed.set_error(std::string(done.message()));
  }
  master_.Send(std::move(answer));
}

}  // namespace elasticdl::programs
