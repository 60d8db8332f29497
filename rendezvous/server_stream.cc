#include "server_stream.h"

#include <utility>

#include "elasticdl/common/status.h"

namespace elasticdl::rendezvous {

ServerStream::ServerStream(CompletionLane& lane, Owner& owner)
    : lane_(lane), owner_(owner), stream_(&context_) {
  // Comes only if the call does.
  context_.AsyncNotifyWhenDone(&ended_);
}

void ServerStream::Await(v1::Master::AsyncService& service,
                         grpc::ServerCompletionQueue& calls) {
  service.RequestAttach(&context_, &stream_, &lane_.queue(), &calls, &called_);
}

void ServerStream::OnCalled(bool ok) {
  // There was no call, so it will not end either.
  if (!ok) return owner_.Remove(this);
  owner_.OnCall(this);
  OneLess();
}

void ServerStream::Begin(ConnectionId id) {
  MutexLock lock(mu_);
  id_ = id;
  ++outstanding_;
  stream_.Read(&in_, &read_);
}

void ServerStream::Send(std::shared_ptr<const v1::MasterMessage> message) {
  MutexLock lock(mu_);
  if (closing_) return;
  out_.push_back(std::move(message));
  MaybeWrite();
}

void ServerStream::Close(const absl::Status& status) {
  MutexLock lock(mu_);
  if (closing_) return;
  closing_ = true;
  close_status_ = status;
  MaybeFinish();
}

void ServerStream::OnRead(bool ok) {
  if (!ok) {
    Close(absl::OkStatus());
    return OneLess();
  }
  if (in_.has_prepare_again()) {
    owner_.PrepareAgain(id_, in_.prepare_again().generation());
  } else {
    owner_.sink().OnMessage(id_, std::move(in_));
  }
  in_ = v1::WorkerMessage();
  stream_.Read(&in_, &read_);
}

void ServerStream::OnWritten(bool ok) {
  {
    MutexLock lock(mu_);
    writing_ = false;
    out_.pop_front();
    if (!ok) {
      // The peer has disconnected; the rest cannot be delivered.
      out_.clear();
      if (!closing_) {
        closing_ = true;
        close_status_ = absl::UnavailableError("the stream broke");
      }
    }
    MaybeWrite();
    MaybeFinish();
  }
  OneLess();
}

void ServerStream::OnFinished(bool /*ok*/) { OneLess(); }

void ServerStream::OnEnded(bool /*ok*/) {
  if (context_.IsCancelled()) {
    {
      MutexLock lock(mu_);
      cancelled_ = true;
    }
    Close(absl::UnavailableError("connection lost"));
  }
  OneLess();
}

void ServerStream::MaybeWrite() {
  if (writing_ || out_.empty()) return;
  writing_ = true;
  ++outstanding_;
  stream_.Write(*out_.front(), &written_);
}

void ServerStream::MaybeFinish() {
  if (!closing_ || writing_ || !out_.empty() || finished_) return;
  finished_ = true;
  ++outstanding_;
  stream_.Finish(ToRpc<grpc::Status>(close_status_), &finish_);
}

void ServerStream::OneLess() {
  absl::Status status;
  {
    MutexLock lock(mu_);
    if (--outstanding_ > 0) return;
    status =
        cancelled_ ? absl::UnavailableError("connection lost") : close_status_;
  }
  if (id_ != 0) {
    owner_.Forget(id_);
    owner_.sink().OnClosed(id_, status);
  }
  owner_.Remove(this);
}

}  // namespace elasticdl::rendezvous
