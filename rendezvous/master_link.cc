#include "elasticdl/rendezvous/master_link.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/life_sign.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::rendezvous {
namespace {

// How long one attempt to reach a restarting master takes. End() is noticed
// between attempts, so this also limits how long it waits.
constexpr absl::Duration kReattachTry = absl::Seconds(1);

v1::WorkerMessage MakeHello(int64_t worker_id, bool resuming) {
  v1::WorkerMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_worker_id(worker_id);
  hello.set_pid(getpid());
  hello.set_resuming(resuming);
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  hello.set_host(host);
  if (const auto sign = OwnLifeSign(); sign.ok()) {
    hello.set_life_sign_fd(sign->fd);
    hello.set_life_sign_id(sign->id);
  }
  return message;
}

}  // namespace

MasterLink::StreamPtr MasterLink::stream() const {
  MutexLock lock(mu_);
  return stream_;
}

absl::StatusOr<v1::Welcome> MasterLink::Attach(int64_t worker_id) {
  return Open(MakeHello(worker_id, /*resuming=*/false),
              options_.connect_timeout);
}

absl::StatusOr<v1::Welcome> MasterLink::Open(const v1::WorkerMessage& hello,
                                             absl::Duration connect_timeout) {
  StreamClient::Options options = options_;
  options.connect_timeout = connect_timeout;
  ELASTICDL_ASSIGN_OR_RETURN(const StreamPtr stream,
                             StreamClient::Connect(options));
  ELASTICDL_RETURN_IF_ERROR(Take(stream, /*welcomed=*/false));
  stream->Send(hello);
  std::optional<v1::MasterMessage> answer =
      stream->Receive(options_.connect_timeout);
  if (!answer.has_value()) {
    return stream->ended()
               ? Annotate(stream->status().ok()
                              ? absl::UnavailableError("stream closed")
                              : stream->status(),
                          absl::StrCat("attaching to the master at ",
                                       options_.address))
               : absl::DeadlineExceededError(
                     absl::StrCat("the master at ", options_.address,
                                  " does not answer Hello"));
  }
  if (answer->has_stop()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the master refused this worker: ", answer->stop().reason()));
  }
  if (!answer->has_welcome()) {
    return absl::InternalError("the master's first message is not Welcome");
  }
  ELASTICDL_RETURN_IF_ERROR(Take(stream, /*welcomed=*/true));
  return answer->welcome();
}

// If End runs first, this refuses the stream; if it runs later, it closes the
// stream. Either way no stream is leaked.
absl::Status MasterLink::Take(const StreamPtr& stream, bool welcomed) {
  MutexLock lock(mu_);
  if (ending_) return absl::CancelledError("the worker is shutting down");
  (welcomed ? stream_ : opening_) = stream;
  if (welcomed) {
    opening_.reset();
    members_ = MemberListReader();
  }
  return absl::OkStatus();
}

absl::Status MasterLink::Reattach(int64_t worker_id, absl::Duration patience) {
  return Attach(MakeHello(worker_id, /*resuming=*/true), patience).status();
}

absl::StatusOr<v1::Welcome> MasterLink::Attach(const v1::WorkerMessage& hello,
                                               absl::Duration patience) {
  const absl::Time deadline = Clock::Real().Now() + patience;
  while (true) {
    {
      MutexLock lock(mu_);
      if (ending_) return absl::CancelledError("the worker is shutting down");
    }
    absl::StatusOr<v1::Welcome> welcome = Open(hello, kReattachTry);
    const absl::Status& status = welcome.status();
    // Fenced, or the wrong master: trying again cannot help.
    if (status.ok() || absl::IsFailedPrecondition(status) ||
        absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status) ||
        absl::IsUnimplemented(status)) {
      return welcome;
    }
    if (Clock::Real().Now() >= deadline) return welcome;
  }
}

void MasterLink::Send(v1::WorkerMessage message) {
  stream()->Send(std::move(message));
}

std::optional<v1::MasterMessage> MasterLink::Receive(absl::Duration timeout) {
  const absl::Time deadline = Clock::Real().Now() + timeout;
  const StreamPtr stream = this->stream();
  while (true) {
    auto message = stream->Receive(deadline - Clock::Real().Now());
    if (!message.has_value() || !message->has_prepare() ||
        ReadMembers(*message->mutable_prepare())) {
      return message;
    }
  }
}

bool MasterLink::ReadMembers(v1::Prepare& prepare) {
  absl::Status status;
  {
    MutexLock lock(mu_);
    status = members_.Decode(prepare);
  }
  if (status.ok()) return true;
  LogWarning(status.message());
  // The whole list would make no more sense a second time.
  if (absl::IsFailedPrecondition(status)) {
    v1::WorkerMessage again;
    again.mutable_prepare_again()->set_generation(prepare.generation());
    Send(std::move(again));
  }
  return false;
}

bool MasterLink::ended() const { return stream()->ended(); }

absl::Status MasterLink::status() const { return stream()->status(); }

void MasterLink::End(absl::Duration timeout) {
  StreamPtr stream;
  StreamPtr opening;
  {
    MutexLock lock(mu_);
    ending_ = true;
    stream = stream_;
    opening = std::move(opening_);
  }
  // Nothing that must be delivered was sent on it.
  if (opening != nullptr) opening->Close(absl::ZeroDuration());
  if (stream != nullptr) stream->Close(timeout);
}

}  // namespace elasticdl::rendezvous
