#include "ps_process.h"

#include <unistd.h>

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/net/socket.h"
#include "elasticdl/ps/bucket_mover.h"
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
                     int server, bool backup) {
  return JoinPath(JoinPath(log_root, run),
                  absl::StrCat("ps-", server, backup ? "-backup" : ""));
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
  absl::Status status =
      InitFailpoints(welcome->job().failpoints(), options_.server);
  if (status.ok()) status = Host(welcome->job());
  int code = kPsExitFailed;
  if (status.ok()) {
    // A server that cannot go on ends the conversation.
    std::vector<Thread> watches;
    watches.reserve(hosted_.size());
    for (const Hosted& hosted : hosted_) {
      watches.emplace_back("watch", [this, &hosted] {
        hosted.server->Wait().IgnoreError();
        Stop();
      });
    }
    Thread commits;
    if (welcome->job().ps_backup()) {
      commits = Thread("commits", [this] { ApplyCommits(); });
    }
    Thread usage("usage", [this] { TellUsage(); });
    code = Converse(*welcome);
    {
      MutexLock lock(mu_);
      talked_ = true;
    }
    stopped_.NotifyAll();
    usage.Join();
    commits_.Close();
    for (const Hosted& hosted : hosted_) hosted.server->Stop();
    for (const Hosted& hosted : hosted_) {
      const absl::Status ended = hosted.server->Wait();
      if (status.ok()) status = ended;
    }
  }
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
  return message;
}

// No change of a copy may overtake what was true before it, or come behind.
void PsProcess::SayHello(const v1::JobSpec& job) {
  MutexLock lock(telling_);
  master_.Send(Hello(job));
}

v1::WorkerMessage PsProcess::Hello(const v1::JobSpec& job) const {
  v1::WorkerMessage message = Greeting();
  v1::ServerHello& hello = *message.mutable_server_hello();
  for (const Hosted& hosted : hosted_) {
    if (job.ps_backup()) {
      v1::PsCopy& copy = *hello.add_copies();
      copy = hosted.server->Describe();
      copy.set_address(hosted.address);
    } else {
      hello.set_address(hosted.address);
      hello.set_version(hosted.server->version());
    }
  }
  return message;
}

absl::Status PsProcess::Host(const v1::JobSpec& job) {
  if (job.run().empty()) return absl::InternalError("the master names no run");
  if (job.ps_backup() && !options_.audit.empty()) {
    return absl::FailedPreconditionError(
        "--ps_audit cannot be used in a job with --ps_backup=1");
  }
  ELASTICDL_ASSIGN_OR_RETURN(Hosted own, StartServer(job, options_.server));
  hosted_.push_back(std::move(own));
  if (!job.ps_backup()) return absl::OkStatus();
  const int servers = job.num_ps_pods();
  ELASTICDL_ASSIGN_OR_RETURN(
      Hosted copy, StartServer(job, (options_.server + servers - 1) % servers));
  hosted_.push_back(std::move(copy));
  return absl::OkStatus();
}

absl::StatusOr<PsProcess::Hosted> PsProcess::StartServer(const v1::JobSpec& job,
                                                         int part) {
  const bool own = part == options_.server;
  ps::ServerOptions options;
  options.server = part;
  options.address = {ListenHost(options_.host), options_.port};
  // The copy has a port of its own: who dials must know whom it reaches.
  if (!own && options.address.port != 0) ++options.address.port;
  options.secret = options_.token;
  options.log_dir = PsLogDir(options_.log_root, job.run(), part, !own);
  options.memory_limit = options_.memory_limit;
  // The process has two copies.
  if (job.ps_backup()) options.memory_limit /= 2;
  if (!options_.audit.empty()) {
    options.audit = absl::StrCat(options_.audit, ".", part);
  }
  options.replicated = job.ps_backup();
  options.tell = [this](const v1::PsPartState& state) {
    v1::WorkerMessage message;
    *message.mutable_part_state() = state;
    MutexLock lock(telling_);
    master_.Send(std::move(message));
  };
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(options.log_dir, 0700));
  Hosted hosted;
  hosted.part = part;
  ELASTICDL_ASSIGN_OR_RETURN(hosted.server,
                             ps::Server::Start(std::move(options)));
  hosted.address =
      net::Address{options_.host, hosted.server->port()}.ToString();
  LogInfo("version ", hosted.server->version(),
          job.ps_backup() ? absl::StrCat(" of part ", part) : "",
          ", for workers at ", hosted.address);
  return hosted;
}

ps::Server* PsProcess::Find(int part) const {
  for (const Hosted& hosted : hosted_) {
    if (hosted.part == part) return hosted.server.get();
  }
  return nullptr;
}

int PsProcess::Converse(const v1::Welcome& welcome) {
  const bool backups = welcome.job().ps_backup();
  // Nothing moves between servers with backups.
  std::unique_ptr<ps::BucketMover> mover;
  if (!backups) {
    ps::BucketMover::Options moves;
    moves.server = options_.server;
    moves.secret = options_.token;
    moves.tell = [this](v1::ServerMoved moved) {
      v1::WorkerMessage message;
      *message.mutable_server_moved() = std::move(moved);
      master_.Send(std::move(message));
    };
    mover = std::make_unique<ps::BucketMover>(
        std::move(moves), *hosted_[0].server, welcome.servers());
  }
  SayHello(welcome.job());
  while (true) {
    while (auto message = master_.Receive(absl::InfiniteDuration())) {
      if (message->has_commit() && !backups) Commit(*message);
      if (mover != nullptr && message->has_servers()) {
        mover->SetServers(message->servers());
      }
      if (mover != nullptr && message->has_move_buckets()) {
        mover->Begin(message->move_buckets());
      }
      if (backups && message->has_assignment()) {
        ps::Server* server = Find(message->assignment().part());
        if (server != nullptr) server->Assign(message->assignment());
      }
      if (message->has_stop()) {
        LogInfo("the master says stop: ", message->stop().reason());
        return message->stop().exit_code();
      }
      if (message->has_commit() && backups) {
        commits_.Push(*std::move(message));
      }
    }
    if (stopping()) return 0;
    const absl::StatusOr<v1::Welcome> back = AttachAgain(welcome);
    if (stopping()) return 0;
    if (!back.ok()) {
      LogError("no master: ", back.status().message());
      return kPsExitMasterLost;
    }
    LogInfo("the master is back");
    if (mover != nullptr) mover->SetServers(back->servers());
    // Only now: workers may have pushed while the master was away, and the
    // master knows how much the server must have.
    SayHello(welcome.job());
  }
}

absl::StatusOr<v1::Welcome> PsProcess::AttachAgain(const v1::Welcome& welcome) {
  const absl::Duration patience =
      absl::Seconds(welcome.job().master_timeout_seconds());
  const absl::Status end = master_.status();
  // Only a master that died may come back.
  if (!absl::IsUnavailable(end) || patience <= absl::ZeroDuration()) {
    return end.ok() ? absl::UnavailableError("the stream has ended") : end;
  }
  LogWarning("the master is gone (", end.message(), "); waiting up to ",
             absl::FormatDuration(patience), " for the next");
  // What copies are to each other may change until there is a master.
  ELASTICDL_ASSIGN_OR_RETURN(v1::Welcome again,
                             master_.Attach(Greeting(), patience));
  if (again.job().run() == welcome.job().run()) return again;
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
    for (const Hosted& hosted : hosted_) {
      const ps::Server::Stats stats = hosted.server->stats();
      telemetry.set_rows(telemetry.rows() + stats.rows);
      telemetry.set_model_bytes(telemetry.model_bytes() + stats.bytes);
      telemetry.set_pulls(telemetry.pulls() + stats.pulls);
      telemetry.set_pushes(telemetry.pushes() + stats.pushes);
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
  const bool copies = hosted_.size() > 1;
  ps::Server* server = copies ? Find(message.part()) : hosted_[0].server.get();
  if (server == nullptr) return;
  v1::PsEntry entry;
  *entry.mutable_commit() = commit;
  const absl::Status done = server->Apply(entry);
  // Another copy has taken over, and the master tells it: or this process ends.
  if (copies && absl::IsUnavailable(done)) return;
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
