#include "elasticdl/rendezvous/stream_server.h"

#include <grpcpp/grpcpp.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "completion_lane.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/log_limit.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/secret.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/swift.h"
#include "elasticdl/rendezvous/member_list.h"
#include "elasticdl/rendezvous/stream_client.h"
#include "elasticdl/v1/master.grpc.pb.h"
#include "grpc_setup.h"
#include "protocol.h"
#include "server_stream.h"

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

class StreamServerImpl : public StreamServer, public ServerStream::Owner {
 public:
  StreamServerImpl(const Options& options, StreamSink& sink)
      : token_(options.token),
        streams_per_thread_(options.streams_per_thread),
        sink_(sink) {}
  ~StreamServerImpl() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Listen(const Options& options) {
    grpc::ServerBuilder builder;
    const int keepalive = ToMilliseconds(options.keepalive);
    builder.AddListeningPort(options.address, grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(&service_);
    auto calls = builder.AddCompletionQueue();
    calls_ = calls.get();
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
    {
      MutexLock lock(mu_);
      AddLane(std::move(calls));
    }
    if (server_ != nullptr && port_ != 0) {
      AwaitCall();
      return absl::OkStatus();
    }
    return absl::UnavailableError(absl::StrCat("cannot listen on ",
                                               options.address, ": ",
                                               WhyNoPort(options.address)));
  }

  int port() const override { return port_; }
  StreamSink& sink() override { return sink_; }

  void OnCall(ServerStream* stream) override {
    AwaitCall();
    const absl::Status refused = CheckCaller(stream->context());
    if (!refused.ok()) return stream->Close(refused);
    MutexLock lock(mu_);
    if (stopped_) {
      return stream->Close(absl::UnavailableError("the master is stopping"));
    }
    const ConnectionId id = ++last_id_;
    connections_[id].stream = stream;
    stream->Begin(id);
  }

  void Send(const std::vector<ConnectionId>& ids,
            v1::MasterMessage message) override {
    MutexLock lock(mu_);
    if (message.has_prepare()) return SendPrepare(ids, std::move(message));
    const auto shared =
        std::make_shared<const v1::MasterMessage>(std::move(message));
    for (const ConnectionId id : ids) {
      const auto found = connections_.find(id);
      if (found != connections_.end()) found->second.stream->Send(shared);
    }
  }

  void PrepareAgain(ConnectionId id, int64_t generation) override {
    MutexLock lock(mu_);
    const auto found = connections_.find(id);
    const auto whole = lists_.Again(generation);
    if (found == connections_.end() || whole == nullptr) return;
    found->second.stream->Send(whole);
    found->second.list = generation;
  }

  void Close(ConnectionId id, const absl::Status& status) override {
    MutexLock lock(mu_);
    const auto found = connections_.find(id);
    if (found != connections_.end()) found->second.stream->Close(status);
  }

  void Forget(ConnectionId id) override {
    MutexLock lock(mu_);
    connections_.erase(id);
  }

  void Remove(ServerStream* stream) override {
    const CompletionLane* const lane = &stream->lane();
    // Its call goes with it, before the lanes may end.
    delete stream;
    MutexLock lock(mu_);
    for (Lane& each : lanes_) {
      if (each.lane.get() == lane) --each.num_streams;
    }
    if (--num_streams_ == 0) none_left_.NotifyAll();
  }

  void Shutdown(absl::Duration grace) override {
    {
      MutexLock lock(mu_);
      if (stopped_) return;
      stopped_ = true;
      for (auto& [id, entry] : connections_) {
        entry.stream->Close(absl::UnavailableError("the master is stopping"));
      }
    }
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now() +
                        absl::ToChronoMilliseconds(grace));
      server_->Wait();
    }
    std::vector<Lane> lanes;
    {
      MutexLock lock(mu_);
      while (num_streams_ > 0) none_left_.Wait(mu_);
      lanes.swap(lanes_);
    }
    for (Lane& each : lanes) each.lane->Stop();
    // The server knows the first one's queue.
    server_.reset();
  }

 private:
  struct Entry {
    ServerStream* stream = nullptr;
    // The generation of the last Prepare that went to it.
    int64_t list = 0;
  };
  struct Lane {
    std::unique_ptr<CompletionLane> lane;
    // That are there or awaited.
    int num_streams = 0;
  };

  void AddLane(std::unique_ptr<grpc::CompletionQueue> queue)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    lanes_.emplace_back().lane =
        std::make_unique<CompletionLane>(std::move(queue));
  }

  // One call at a time: the others wait in gRPC.
  void AwaitCall() {
    MutexLock lock(mu_);
    if (stopped_) return;
    auto room =
        std::find_if(lanes_.begin(), lanes_.end(), [this](const Lane& lane) {
          return lane.num_streams < streams_per_thread_;
        });
    if (room == lanes_.end()) {
      AddLane(std::make_unique<grpc::CompletionQueue>());
      room = std::prev(lanes_.end());
    }
    ++room->num_streams;
    ++num_streams_;
    (new ServerStream(*room->lane, *this))->Await(service_, *calls_);
  }

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
      entry.stream->Send(knows ? encoded.change : encoded.whole);
      entry.list = encoded.generation;
    }
  }

  // OK if the caller has the job's token and our version.
  absl::Status CheckCaller(const grpc::ServerContext& context) const {
    const std::optional<absl::string_view> token = Find(context, kTokenKey);
    if (!token.has_value() || !SecretsEqual(*token, token_)) {
      if (const auto others = refusals_.Allow(Clock::Real().Now())) {
        LogWarning("refused a call from ", context.peer(), ": ",
                   token.has_value() ? "wrong token" : "no token",
                   LogLimit::Describe(*others));
      }
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
      const grpc::ServerContext& context, const char* key) {
    const auto& metadata = context.client_metadata();
    const auto found = metadata.find(key);
    if (found == metadata.end()) return std::nullopt;
    return absl::string_view(found->second.data(), found->second.size());
  }
  static int ToMilliseconds(absl::Duration duration) {
    return static_cast<int>(absl::ToInt64Milliseconds(duration));
  }

  const std::string token_;
  // Strangers must not fill the disk with lines about them.
  mutable LogLimit refusals_;
  const int streams_per_thread_;
  StreamSink& sink_;
  int port_ = 0;
  v1::Master::AsyncService service_;
  // Of the first lane.
  grpc::ServerCompletionQueue* calls_ = nullptr;
  std::unique_ptr<grpc::Server> server_;

  // Held while a stream is used, so that it is not removed meanwhile. Lock
  // order: this one, then the stream's.
  Mutex mu_;
  std::vector<Lane> lanes_ ABSL_GUARDED_BY(mu_);
  int num_streams_ ABSL_GUARDED_BY(mu_) = 0;
  CondVar none_left_;
  std::unordered_map<ConnectionId, Entry> connections_ ABSL_GUARDED_BY(mu_);
  MemberListWriter lists_ ABSL_GUARDED_BY(mu_);
  ConnectionId last_id_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StreamServer>> StreamServer::Start(
    const Options& options, StreamSink& sink) {
  ELASTICDL_CHECK(!options.token.empty());
  ELASTICDL_CHECK(options.streams_per_thread > 0);
  const StartSwiftThreads swift;
  SetUpGrpc();
  auto server = std::make_unique<StreamServerImpl>(options, sink);
  ELASTICDL_RETURN_IF_ERROR(server->Listen(options));
  return server;
}

}  // namespace elasticdl::rendezvous
