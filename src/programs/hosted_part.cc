#include "hosted_part.h"

#include <utility>

#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/net/socket.h"

namespace elasticdl::programs {
namespace {

ps::BucketMover::Options MoverOptions(int part,
                                      const HostedPart::Options& options) {
  ps::BucketMover::Options moves;
  moves.server = part;
  moves.secret = options.server.secret;
  moves.tell = [send = options.send](v1::ServerMoved moved) {
    v1::WorkerMessage message;
    *message.mutable_server_moved() = std::move(moved);
    send(std::move(message));
  };
  return moves;
}

}  // namespace

absl::StatusOr<std::shared_ptr<HostedPart>> HostedPart::Start(
    const Options& options) {
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(options.server.log_dir, 0700));
  ELASTICDL_ASSIGN_OR_RETURN(std::unique_ptr<ps::Server> server,
                             ps::Server::Start(options.server));
  // Shared: the thread that applies what the master commits may be at work when
  // the process gives the part up.
  return std::shared_ptr<HostedPart>(
      new HostedPart(options.server.server, options, std::move(server)));
}

HostedPart::HostedPart(int part, const Options& options,
                       std::unique_ptr<ps::Server> server)
    : part_(part),
      address_(net::Address{options.host, server->port()}.ToString()),
      log_dir_(options.server.log_dir),
      ended_(options.ended),
      server_(std::move(server)),
      mover_(std::make_unique<ps::BucketMover>(MoverOptions(part, options),
                                               *server_, options.servers)),
      watch_("watch", [this] {
        server_->Wait().IgnoreError();
        if (!stopped_) ended_();
      }) {}

HostedPart::~HostedPart() {
  Stop();
  watch_.Join();
}

void HostedPart::Assign(const v1::PsAssignment& assignment) {
  // Before: what it says as the primary would be taken for the new one's word.
  if (!assignment.primary()) mover_->Drop();
  server_->Assign(assignment);
}

absl::Status HostedPart::Apply(const v1::PsEntry& entry) {
  MutexLock lock(applying_);
  return server_->Apply(entry);
}

void HostedPart::AwaitApply() { MutexLock lock(applying_); }

void HostedPart::Stop() {
  stopped_ = true;
  mover_->Stop();
  server_->Stop();
}

}  // namespace elasticdl::programs
