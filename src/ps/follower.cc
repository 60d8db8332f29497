#include "follower.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "snapshot.h"

namespace elasticdl::ps {
namespace {

// Whoever waits for the first of them has its answer soon.
constexpr int kMostUnanswered = 8;

}  // namespace

Follower::Follower(FollowedServer& server, int64_t connection,
                   const std::string& dir, ServerState::Options options)
    : server_(server),
      connection_(connection),
      // Without a number at its end: the log takes it for unfinished.
      path_(JoinPath(dir, absl::StrCat("snapshot-from-", connection))),
      options_(options) {}

Follower::~Follower() {
  if (file_.valid()) unlink(path_.c_str());
}

bool Follower::Handle(const v1::PsRequest& request, absl::string_view payload,
                      bool more, v1::PsReply& reply) {
  absl::Status done;
  absl::StatusOr<int64_t> position = 0;
  bool answer = true;
  if (request.has_follow()) {
    done = Begin(request.follow());
  } else if (!following_) {
    done = absl::InvalidArgumentError("entries for a backup out of order");
  } else if (request.has_snapshot_piece()) {
    done = TakePiece(payload);
    answer = !done.ok() || missing_ == 0;
  } else {
    done = TakeFrames(payload);
    if (done.ok() && more && ++unanswered_ < kMostUnanswered) return false;
    unanswered_ = 0;
    // An empty one is answered only by a backup, too: what a copy has that
    // became the primary is not what its old primary sent.
    if (done.ok()) {
      position = server_.Followed(connection_, request.frames().current());
    }
    done.Update(position.status());
  }
  reply.set_code(static_cast<int>(done.code()));
  reply.set_message(std::string(done.message()));
  reply.set_position(position.value_or(0));
  reply.set_term(server_.FollowedTerm());
  if (!done.ok()) following_ = false;
  return answer;
}

absl::Status Follower::Begin(const v1::PsFollow& follow) {
  following_ = false;
  if (follow.position() < 0) {
    return absl::InvalidArgumentError("a snapshot of a negative position");
  }
  ELASTICDL_RETURN_IF_ERROR(server_.BeginFollow(connection_, follow.term()));
  missing_ = follow.snapshot_bytes();
  position_ = follow.position();
  // What is here is of no more use; a snapshot needs its memory.
  ELASTICDL_RETURN_IF_ERROR(
      server_.Replace(connection_, ServerState(options_), "", 0));
  if (missing_ > 0) {
    file_ =
        Fd(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file_.valid()) {
      return ErrnoToStatus(errno, absl::StrCat("open ", path_));
    }
  }
  following_ = true;
  return absl::OkStatus();
}

absl::Status Follower::TakePiece(absl::string_view piece) {
  if (piece.empty() || piece.size() > missing_) {
    return absl::InvalidArgumentError("a snapshot of another size");
  }
  missing_ -= piece.size();
  while (!piece.empty()) {
    const ssize_t n = write(file_.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoToStatus(errno, absl::StrCat("write ", path_));
    piece.remove_prefix(static_cast<size_t>(n));
  }
  if (missing_ > 0) return absl::OkStatus();
  int64_t position = 0;
  ELASTICDL_ASSIGN_OR_RETURN(ServerState state,
                             ReadSnapshot(path_, options_, position));
  if (position != position_) {
    return absl::InvalidArgumentError("a snapshot of another position");
  }
  ELASTICDL_RETURN_IF_ERROR(
      server_.Replace(connection_, std::move(state), path_, position));
  file_.Reset();
  return absl::OkStatus();
}

absl::Status Follower::TakeFrames(absl::string_view frames) {
  if (missing_ > 0) {
    return absl::InvalidArgumentError("entries before the whole snapshot");
  }
  while (!frames.empty()) {
    Frame frame;
    v1::PsEntry entry;
    if (ParseFrame(frames, frame) != FrameResult::kOk ||
        !entry.ParseFromArray(frame.header.data(),
                              static_cast<int>(frame.header.size()))) {
      return absl::InvalidArgumentError("an entry that cannot be understood");
    }
    ELASTICDL_RETURN_IF_ERROR(Failpoint("ps.follow"));
    ELASTICDL_RETURN_IF_ERROR(server_.Follow(connection_, entry, frame));
    frames.remove_prefix(frame.whole.size());
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::ps
