#include "elasticdl/rendezvous/stream_server.h"

#include <grpcpp/grpcpp.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/secret.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/swift.h"
#include "elasticdl/rendezvous/member_list.h"
#include "elasticdl/rendezvous/stream_client.h"
#include "elasticdl/v1/master.grpc.pb.h"
#include "grpc_setup.h"
#include "protocol.h"

namespace elasticdl::rendezvous {
namespace {

// Large enough for a ledger with tens of thousands of outstanding ranges.
constexpr int kMaxMessageBytes = 256 << 20;

// gRPC does not say why it cannot listen, so try to bind once more to get the
// kernel's reason.
std::string WhyNoPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  if (const int error =
          getaddrinfo(address.substr(0, colon).c_str(),
                      address.substr(colon + 1).c_str(), &hints, &list);
      error != 0) {
    return gai_strerror(error);
  }
  const Fd fd(socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int error =
      bind(fd.get(), list->ai_addr, list->ai_addrlen) == 0 ? 0 : errno;
  freeaddrinfo(list);
  if (error == 0 || error == EADDRINUSE) {
    return "the port is taken, perhaps by another master; choose another "
           "--port (0 = any free one)";
  }
  return std::strerror(error);
}

// Refuses a call.
class Refusal
    : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::MasterMessage> {
 public:
  explicit Refusal(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

class Connection;

// What a connection needs from its server. Outlives every connection.
class Owner {
 public:
  virtual ~Owner() = default;
  virtual StreamSink& sink() = 0;
  virtual void Forget(ConnectionId id) = 0;
  // The newest Prepare, whole, if it is still the one of this generation.
  virtual void PrepareAgain(ConnectionId id, int64_t generation) = 0;
};

// One stream. Deletes itself in OnDone. It removes itself from the server's
// table first, under the server's lock, so nobody can use it after that.
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
    if (in_.has_prepare_again()) {
      owner_.PrepareAgain(id_, in_.prepare_again().generation());
    } else {
      owner_.sink().OnMessage(id_, std::move(in_));
    }
    in_ = v1::WorkerMessage();
    StartRead(&in_);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mu_);
    writing_ = false;
    out_.pop_front();
    if (!ok) {
      // The peer has disconnected; the rest cannot be delivered.
      out_.clear();
      if (!closing_) {
        closing_ = true;
        close_status_ = grpc::Status(grpc::UNAVAILABLE, "the stream broke");
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
  // While writing_, the first one is being written. Messages are shared between
  // all connections that they go to.
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
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT,
                               options.reserved_port ? 1 : 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                               ToMilliseconds(options.keepalive_timeout));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(
        GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, keepalive / 2);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                               kWindowBytes);
    server_ = builder.BuildAndStart();
    if (server_ != nullptr && port_ != 0) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("cannot listen on ",
                                               options.address, ": ",
                                               WhyNoPort(options.address)));
  }

  int port() const override { return port_; }
  StreamSink& sink() override { return sink_; }

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::MasterMessage>* Attach(
      grpc::CallbackServerContext* context) override {
    const absl::Status refused = CheckCaller(*context);
    if (!refused.ok()) return new Refusal(ToRpc<grpc::Status>(refused));
    MutexLock lock(mu_);
    if (stopped_) {
      return new Refusal(
          grpc::Status(grpc::UNAVAILABLE, "the master is stopping"));
    }
    const ConnectionId id = ++last_id_;
    auto* connection = new Connection(id, *this);
    connections_[id].connection = connection;
    return connection;
  }

  void Send(const std::vector<ConnectionId>& ids,
            v1::MasterMessage message) override {
    MutexLock lock(mu_);
    if (message.has_prepare()) return SendPrepare(ids, std::move(message));
    const auto shared =
        std::make_shared<const v1::MasterMessage>(std::move(message));
    for (const ConnectionId id : ids) {
      const auto found = connections_.find(id);
      if (found != connections_.end()) found->second.connection->Send(shared);
    }
  }

  void PrepareAgain(ConnectionId id, int64_t generation) override {
    MutexLock lock(mu_);
    const auto found = connections_.find(id);
    const auto whole = lists_.Again(generation);
    if (found == connections_.end() || whole == nullptr) return;
    found->second.connection->Send(whole);
    found->second.list = generation;
  }

  void Close(ConnectionId id, const absl::Status& status) override {
    MutexLock lock(mu_);
    const auto found = connections_.find(id);
    if (found != connections_.end()) found->second.connection->Close(status);
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
      for (auto& [id, entry] : connections_) {
        entry.connection->Close(
            absl::UnavailableError("the master is stopping"));
      }
    }
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() +
                      absl::ToChronoMilliseconds(grace));
    server_->Wait();
  }

 private:
  struct Entry {
    Connection* connection = nullptr;
    // The generation of the last Prepare that went to it.
    int64_t list = 0;
  };

  // The change to those who know the list before, the whole list to others.
  void SendPrepare(const std::vector<ConnectionId>& ids,
                   v1::MasterMessage message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const MemberListWriter::Encoded encoded = lists_.Encode(std::move(message));
    for (const ConnectionId id : ids) {
      const auto found = connections_.find(id);
      if (found == connections_.end()) continue;
      Entry& entry = found->second;
      const bool knows =
          encoded.change != nullptr && entry.list == encoded.base;
      entry.connection->Send(knows ? encoded.change : encoded.whole);
      entry.list = encoded.generation;
    }
  }

  // OK if the caller has the job's token and our version.
  absl::Status CheckCaller(const grpc::CallbackServerContext& context) const {
    const std::optional<absl::string_view> token = Find(context, kTokenKey);
    if (!token.has_value() || !SecretsEqual(*token, token_)) {
      LogWarning("refused a call from ", context.peer(), ": ",
                 token.has_value() ? "wrong token" : "no token");
      return absl::UnauthenticatedError(
          "the job's token is missing or wrong: give worker and master the "
          "same --token_file or ELASTICDL_TOKEN");
    }
    const absl::string_view version =
        Find(context, kVersionKey).value_or("of another version");
    if (version != kProtocolVersion) {
      LogWarning("refused a worker at ", context.peer(), ": it is ElasticDL ",
                 version, ", this master is ", kProtocolVersion,
                 "; start both from one build or image");
      return absl::UnimplementedError(absl::StrCat(
          "this worker is ElasticDL ", version, ", the job's master is ",
          kProtocolVersion, ": start both from one build or image"));
    }
    return absl::OkStatus();
  }
  static std::optional<absl::string_view> Find(
      const grpc::CallbackServerContext& context, const char* key) {
    const auto& metadata = context.client_metadata();
    const auto found = metadata.find(key);
    if (found == metadata.end()) return std::nullopt;
    return absl::string_view(found->second.data(), found->second.size());
  }
  static int ToMilliseconds(absl::Duration duration) {
    return static_cast<int>(absl::ToInt64Milliseconds(duration));
  }

  const std::string token_;
  StreamSink& sink_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;

  // Held while a connection is used, so that it cannot delete itself meanwhile.
  // Lock order: this one, then the connection's.
  Mutex mu_;
  std::unordered_map<ConnectionId, Entry> connections_ ABSL_GUARDED_BY(mu_);
  MemberListWriter lists_ ABSL_GUARDED_BY(mu_);
  ConnectionId last_id_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StreamServer>> StreamServer::Start(
    const Options& options, StreamSink& sink) {
  ELASTICDL_CHECK(!options.token.empty());
  const StartSwiftThreads swift;
  SetUpGrpc();
  auto server = std::make_unique<StreamServerImpl>(options.token, sink);
  ELASTICDL_RETURN_IF_ERROR(server->Listen(options));
  return server;
}

}  // namespace elasticdl::rendezvous
