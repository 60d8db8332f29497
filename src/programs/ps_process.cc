#include "ps_process.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/net/socket.h"

namespace elasticdl::programs {
namespace {

// How long the last messages may take to leave.
constexpr absl::Duration kCloseTimeout = absl::Seconds(5);

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
                     int server) {
  return JoinPath(JoinPath(log_root, run), absl::StrCat("ps-", server));
}

PsProcess::PsProcess(PsOptions options)
    : options_(std::move(options)), master_(StreamOptions(options_)) {}

int PsProcess::Run() {
  // Without an address yet: where the log is follows from the answer.
  const absl::StatusOr<v1::Welcome> welcome =
      master_.Attach(Hello("", 0), options_.connect_timeout);
  if (!welcome.ok()) {
    if (stopping()) return 0;
    LogError(welcome.status().message());
    return absl::IsUnimplemented(welcome.status()) ||
                   absl::IsFailedPrecondition(welcome.status())
               ? kPsExitFailed
               : kPsExitMasterLost;
  }
  LogInfo("server ", options_.server, " of job ", welcome->job().job_name());
  absl::Status status =
      InitFailpoints(welcome->job().failpoints(), options_.server);
  std::unique_ptr<ps::Server> server;
  if (status.ok()) {
    auto started = StartServer(welcome->job().run());
    status = started.status();
    if (started.ok()) server = *std::move(started);
  }
  int code = kPsExitFailed;
  if (status.ok()) {
    // A server that cannot go on ends the conversation.
    Thread watch("watch", [&] {
      server->Wait().IgnoreError();
      Stop();
    });
    code = Converse(*welcome, *server);
    server->Stop();
    status = server->Wait();
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
  master_.End(kCloseTimeout);
}

bool PsProcess::stopping() const {
  MutexLock lock(mu_);
  return stopping_;
}

v1::WorkerMessage PsProcess::Hello(const std::string& address,
                                   int64_t version) const {
  v1::WorkerMessage message;
  v1::ServerHello& hello = *message.mutable_server_hello();
  hello.set_server(options_.server);
  hello.set_pid(getpid());
  hello.set_address(address);
  hello.set_version(version);
  return message;
}

absl::StatusOr<std::unique_ptr<ps::Server>> PsProcess::StartServer(
    const std::string& run) {
  if (run.empty()) return absl::InternalError("the master names no run");
  ps::ServerOptions options;
  options.server = options_.server;
  options.address = {ListenHost(options_.host), options_.port};
  options.secret = options_.token;
  options.log_dir = PsLogDir(options_.log_root, run, options_.server);
  options.memory_limit = options_.memory_limit;
  if (!options_.audit.empty()) {
    options.audit = absl::StrCat(options_.audit, ".", options_.server);
  }
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(options.log_dir, 0700));
  return ps::Server::Start(std::move(options));
}

int PsProcess::Converse(const v1::Welcome& welcome, ps::Server& server) {
  const std::string address =
      net::Address{options_.host, server.port()}.ToString();
  LogInfo("version ", server.version(), ", for workers at ", address);
  master_.Send(Hello(address, server.version()));
  while (true) {
    while (auto message = master_.Receive(absl::InfiniteDuration())) {
      if (message->has_commit()) Commit(message->commit(), server);
      if (message->has_stop()) {
        LogInfo("the master says stop: ", message->stop().reason());
        return message->stop().exit_code();
      }
    }
    if (stopping()) return 0;
    const absl::Status back =
        AttachAgain(welcome, Hello(address, server.version()));
    if (stopping()) return 0;
    if (!back.ok()) {
      LogError("no master: ", back.message());
      return kPsExitMasterLost;
    }
    LogInfo("the master is back");
  }
}

absl::Status PsProcess::AttachAgain(const v1::Welcome& welcome,
                                    const v1::WorkerMessage& hello) {
  const absl::Duration patience =
      absl::Seconds(welcome.job().master_timeout_seconds());
  const absl::Status end = master_.status();
  // Only a master that died may come back.
  if (!absl::IsUnavailable(end) || patience <= absl::ZeroDuration()) {
    return end.ok() ? absl::UnavailableError("the stream has ended") : end;
  }
  LogWarning("the master is gone (", end.message(), "); waiting up to ",
             absl::FormatDuration(patience), " for the next");
  ELASTICDL_ASSIGN_OR_RETURN(const v1::Welcome again,
                             master_.Attach(hello, patience));
  if (again.job().run() == welcome.job().run()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "another run of the job has begun, which needs other values");
}

void PsProcess::Commit(const v1::PsCommit& commit, ps::Server& server) {
  v1::PsEntry entry;
  *entry.mutable_commit() = commit;
  const absl::Status done = server.Apply(entry);
  v1::WorkerMessage message;
  v1::ServerCommitted& committed = *message.mutable_server_committed();
  committed.set_version(commit.version());
  // It may be said again after a restart of either side.
  if (!done.ok() && !absl::IsAlreadyExists(done)) {
    LogWarning("version ", commit.version(), ": ", done.message());
    committed.set_error(std::string(done.message()));
  }
  master_.Send(std::move(message));
}

}  // namespace elasticdl::programs
