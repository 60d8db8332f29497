#include "elasticdl/rendezvous/stream_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <deque>
#include <utility>

#include "elasticdl/common/mutex.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/swift.h"
#include "elasticdl/v1/master.grpc.pb.h"
#include "grpc_setup.h"
#include "protocol.h"

namespace elasticdl::rendezvous {
namespace {

constexpr int kMaxMessageBytes = 256 << 20;

int ToMilliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

std::shared_ptr<grpc::Channel> MakeChannel(
    const StreamClient::Options& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   ToMilliseconds(options.keepalive));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   ToMilliseconds(options.keepalive_timeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
  // Reconnect quickly: the master may still be starting.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(
      options.address, grpc::InsecureChannelCredentials(), arguments);
}

class StreamClientImpl
    : public StreamClient,
      public grpc::ClientBidiReactor<v1::WorkerMessage, v1::MasterMessage> {
 public:
  StreamClientImpl(std::shared_ptr<grpc::Channel> channel,
                   const StreamClient::Options& options)
      : channel_(std::move(channel)), stub_(v1::Master::NewStub(channel_)) {
    context_.AddMetadata(kTokenKey, options.token);
    context_.AddMetadata(kVersionKey, options.version.empty()
                                          ? kProtocolVersion
                                          : options.version);
    stub_->async()->Attach(&context_, this);
    // The hold keeps OnDone from being called, so that writes may start from
    // any thread until Close.
    AddHold();
    StartRead(&in_);
    StartCall();
  }

  ~StreamClientImpl() override { Close(absl::ZeroDuration()); }

  void Send(v1::WorkerMessage message) override {
    MutexLock lock(mu_);
    if (closing_ || broken_) return;
    out_.push_back(std::move(message));
    MaybeWrite();
  }

  std::optional<v1::MasterMessage> Receive(absl::Duration timeout) override {
    const auto start = std::chrono::steady_clock::now();
    MutexLock lock(mu_);
    while (received_.empty() && !read_ended_) {
      const absl::Duration used =
          absl::FromChrono(std::chrono::steady_clock::now() - start);
      if (used >= timeout) return std::nullopt;
      changed_.WaitFor(mu_, timeout - used);
    }
    if (received_.empty()) {
      // OnDone sets the status shortly after the last read.
      while (!done_ && broken_) changed_.Wait(mu_);
      return std::nullopt;
    }
    std::optional<v1::MasterMessage> message = std::move(received_.front());
    received_.pop_front();
    return message;
  }

  bool ended() const override {
    MutexLock lock(mu_);
    return read_ended_ && received_.empty();
  }

  absl::Status status() const override {
    MutexLock lock(mu_);
    return status_;
  }

  absl::Status Flush(absl::Duration timeout) override {
    MutexLock lock(mu_);
    return FlushLocked(timeout);
  }

  void Close(absl::Duration timeout) override {
    MutexLock lock(mu_);
    // Not let go of the lock after it: the answer to a ping that came in
    // between would never be sent, and the stream not end in order.
    FlushLocked(timeout).IgnoreError();
    if (!closing_) {
      closing_ = true;
      if (!broken_ && out_.empty()) StartWritesDone();
      RemoveHold();
    }
    const auto start = std::chrono::steady_clock::now();
    while (!done_) {
      const absl::Duration used =
          absl::FromChrono(std::chrono::steady_clock::now() - start);
      if (used >= timeout) {
        context_.TryCancel();
        while (!done_) changed_.Wait(mu_);
      } else {
        changed_.WaitFor(mu_, timeout - used);
      }
    }
  }

  void OnReadDone(bool ok) override {
    MutexLock lock(mu_);
    if (!ok) {
      read_ended_ = true;
      End();
    } else {
      if (in_.has_ping()) {
        // Here, because whoever receives messages may be busy.
        AnswerPing();
      } else {
        received_.push_back(std::move(in_));
      }
      in_ = v1::MasterMessage();
      StartRead(&in_);
    }
    changed_.NotifyAll();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mu_);
    writing_ = false;
    out_.pop_front();
    if (!ok) {
      out_.clear();
      End();
    }
    MaybeWrite();
    changed_.NotifyAll();
  }

  void OnDone(const grpc::Status& status) override {
    MutexLock lock(mu_);
    status_ = FromRpc(status);
    read_ended_ = true;
    broken_ = true;
    done_ = true;
    changed_.NotifyAll();
  }

 private:
  absl::Status FlushLocked(absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto start = std::chrono::steady_clock::now();
    while (!out_.empty() && !broken_) {
      const absl::Duration used =
          absl::FromChrono(std::chrono::steady_clock::now() - start);
      if (used >= timeout) {
        return absl::DeadlineExceededError(
            "messages to the master were not sent in time");
      }
      changed_.WaitFor(mu_, timeout - used);
    }
    return broken_ ? status_ : absl::OkStatus();
  }
  void MaybeWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || out_.empty() || broken_ || closing_) return;
    writing_ = true;
    StartWrite(&out_.front());
  }
  void AnswerPing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (closing_ || broken_) return;
    out_.emplace_back().mutable_pong();
    MaybeWrite();
  }
  // The stream is broken: nothing more can be sent. OnDone is called only after
  // the hold is removed.
  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    broken_ = true;
    if (!closing_) {
      closing_ = true;
      RemoveHold();
    }
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Master::Stub> stub_;
  grpc::ClientContext context_;
  v1::MasterMessage in_;

  mutable Mutex mu_;
  CondVar changed_;
  std::deque<v1::WorkerMessage> out_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::MasterMessage> received_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  bool read_ended_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<StreamClient>> StreamClient::Connect(
    const Options& options) {
  // gRPC's own, which bring the news of a new world.
  const StartSwiftThreads swift;
  SetUpGrpc();
  std::shared_ptr<grpc::Channel> channel = MakeChannel(options);
  if (!channel->WaitForConnected(
          std::chrono::system_clock::now() +
          absl::ToChronoMilliseconds(options.connect_timeout))) {
    return absl::DeadlineExceededError(
        absl::StrCat("no master answered at ", options.address, " within ",
                     absl::FormatDuration(options.connect_timeout)));
  }
  return std::make_unique<StreamClientImpl>(std::move(channel), options);
}

}  // namespace elasticdl::rendezvous
