#include "elasticdl/rendezvous/stream_server.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/secret.h"
#include "elasticdl/common/status.h"
#include "elasticdl/rendezvous/stream_client.h"
#include "elasticdl/v1/master.grpc.pb.h"
#include "lock_checks.h"

namespace elasticdl::rendezvous {
namespace {

// Models with tens of thousands of outstanding ranges still fit a ledger.
constexpr int kMaxMessageBytes = 256 << 20;

// Refuses a call.
class Refusal
    : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::MasterMessage> {
 public:
  explicit Refusal(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

class Connection;

// What a connection needs of its server. Outlives every connection.
class Owner {
 public:
  virtual ~Owner() = default;
  virtual StreamSink& sink() = 0;
  virtual void Forget(ConnectionId id) = 0;
};

// One stream. Deletes itself in OnDone, after which nobody can reach it (the
// server's table is cleared first, under the server's lock).
class Connection
    : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::MasterMessage> {
 public:
  Connection(ConnectionId id, Owner& owner) : id_(id), owner_(owner) {
    StartRead(&in_);
  }

  void Send(std::shared_ptr<const v1::MasterMessage> message) {
    MutexLock lock(mu_);
    if (closing_) return;
    out_.push_back(std::move(message));
    MaybeWrite();
  }

  void Close(const absl::Status& status) {
    MutexLock lock(mu_);
    if (closing_) return;
    closing_ = true;
    close_status_ = ToRpc<grpc::Status>(status);
    MaybeFinish();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Close(absl::OkStatus());
      return;
    }
    owner_.sink().OnMessage(id_, std::move(in_));
    in_ = v1::WorkerMessage();
    StartRead(&in_);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mu_);
    writing_ = false;
    out_.pop_front();
    if (!ok) {
      // The peer is gone; what is left cannot be delivered.
      out_.clear();
      if (!closing_) {
        closing_ = true;
        close_status_ = grpc::Status(grpc::UNAVAILABLE, "stream is broken");
      }
    }
    MaybeWrite();
    MaybeFinish();
  }

  void OnCancel() override {
    {
      MutexLock lock(mu_);
      cancelled_ = true;
    }
    Close(absl::UnavailableError("connection lost"));
  }

  void OnDone() override {
    owner_.Forget(id_);
    absl::Status status = absl::OkStatus();
    {
      MutexLock lock(mu_);
      status = cancelled_ ? absl::UnavailableError("connection lost")
                          : FromRpc(close_status_);
    }
    owner_.sink().OnClosed(id_, status);
    delete this;
  }

 private:
  void MaybeWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || out_.empty()) return;
    writing_ = true;
    StartWrite(out_.front().get());
  }
  void MaybeFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!closing_ || writing_ || !out_.empty() || finished_) return;
    finished_ = true;
    Finish(close_status_);
  }

  const ConnectionId id_;
  Owner& owner_;
  v1::WorkerMessage in_;

  Mutex mu_;
  // The front one is being written while writing_. Shared by all connections
  // that it goes to.
  std::deque<std::shared_ptr<const v1::MasterMessage>> out_
      ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status close_status_ ABSL_GUARDED_BY(mu_);
};

class StreamServerImpl : public StreamServer,
                         public v1::Master::CallbackService,
                         public Owner {
 public:
  StreamServerImpl(std::string token, StreamSink& sink)
      : token_(std::move(token)), sink_(sink) {}
  ~StreamServerImpl() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Listen(const Options& options) {
    grpc::ServerBuilder builder;
    const int keepalive = ToMilliseconds(options.keepalive);
    builder.AddListeningPort(options.address, grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.SetMaxSendMessageSize(kMaxMessageBytes);
    // Two masters on one port would split the workers between them.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                               ToMilliseconds(options.keepalive_timeout));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(
        GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, keepalive / 2);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", options.address,
                       ": is the port taken by another master?"));
    }
    return absl::OkStatus();
  }

  int port() const override { return port_; }
  StreamSink& sink() override { return sink_; }

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::MasterMessage>* Attach(
      grpc::CallbackServerContext* context) override {
    const auto& metadata = context->client_metadata();
    const auto token = metadata.find(kTokenKey);
    if (token == metadata.end() ||
        !SecretsEqual(
            absl::string_view(token->second.data(), token->second.size()),
            token_)) {
      LogWarning("refused a call from ", context->peer(), ": ",
                 token == metadata.end() ? "no token" : "wrong token");
      return new Refusal(grpc::Status(grpc::UNAUTHENTICATED,
                                      "the job's token is missing or wrong"));
    }
    MutexLock lock(mu_);
    if (stopped_) {
      return new Refusal(
          grpc::Status(grpc::UNAVAILABLE, "the master is stopping"));
    }
    const ConnectionId id = ++last_id_;
    auto* connection = new Connection(id, *this);
    connections_[id] = connection;
    return connection;
  }

  void Send(const std::vector<ConnectionId>& ids,
            v1::MasterMessage message) override {
    const auto shared =
        std::make_shared<const v1::MasterMessage>(std::move(message));
    MutexLock lock(mu_);
    for (const ConnectionId id : ids) {
      const auto found = connections_.find(id);
      if (found != connections_.end()) found->second->Send(shared);
    }
  }

  void Close(ConnectionId id, const absl::Status& status) override {
    MutexLock lock(mu_);
    const auto found = connections_.find(id);
    if (found != connections_.end()) found->second->Close(status);
  }

  void Forget(ConnectionId id) override {
    MutexLock lock(mu_);
    connections_.erase(id);
  }

  void Shutdown(absl::Duration grace) override {
    {
      MutexLock lock(mu_);
      if (stopped_) return;
      stopped_ = true;
      for (auto& [id, connection] : connections_) {
        connection->Close(absl::UnavailableError("the master is stopping"));
      }
    }
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() +
                      absl::ToChronoMilliseconds(grace));
    server_->Wait();
  }

 private:
  static int ToMilliseconds(absl::Duration duration) {
    return static_cast<int>(absl::ToInt64Milliseconds(duration));
  }

  const std::string token_;
  StreamSink& sink_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;

  // Held while a connection is used, so that it cannot delete itself then. The
  // order of locks is always this one, then the connection's.
  Mutex mu_;
  std::map<ConnectionId, Connection*> connections_ ABSL_GUARDED_BY(mu_);
  ConnectionId last_id_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StreamServer>> StreamServer::Start(
    const Options& options, StreamSink& sink) {
  ELASTICDL_CHECK(!options.token.empty());
  IgnoreLockOrder();
  auto server = std::make_unique<StreamServerImpl>(options.token, sink);
  ELASTICDL_RETURN_IF_ERROR(server->Listen(options));
  return server;
}

}  // namespace elasticdl::rendezvous
