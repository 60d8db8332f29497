// The backup's end of a connection from its primary (replicator.h): receives
// the snapshot and the entries and passes them to the server.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/common/file.h"
#include "elasticdl/v1/ps.pb.h"
#include "log_frame.h"
#include "server_state.h"

namespace elasticdl::ps {

// What a follower may do with its server. Thread-safe. Each fails with
// FAILED_PRECONDITION when the term is over, and with UNAVAILABLE when this
// copy is not a backup or another connection has replaced this one.
class FollowedServer {
 public:
  virtual ~FollowedServer() = default;
  // From now on the connection of this number counts.
  virtual absl::Status BeginFollow(int64_t connection, int64_t term) = 0;
  // Everything is replaced by this state, that of a snapshot in the folder of
  // the log, or by nothing (empty path, new state).
  virtual absl::Status Replace(int64_t connection, ServerState state,
                               const std::string& snapshot,
                               int64_t position) = 0;
  virtual absl::Status Follow(int64_t connection, const v1::PsEntry& entry,
                              const Frame& frame) = 0;
  // Everything that the connection has brought is in: entries in the log.
  // `current`: that is all there is, as the primary says.
  virtual absl::StatusOr<int64_t> Followed(int64_t connection,
                                           bool current) = 0;
  virtual int64_t FollowedTerm() const = 0;
};

// Thread-compatible.
class Follower {
 public:
  // `dir`: the folder of the server's log.
  Follower(FollowedServer& server, int64_t connection, const std::string& dir,
           ServerState::Options options);
  ~Follower();

  // A PsFollow, PsSnapshotPiece or PsFrames. Fills code, message, position
  // and term of the answer. False: there is none. `more`: the next request is
  // there already, and its answer may stand for this one, too.
  bool Handle(const v1::PsRequest& request, absl::string_view payload,
              bool more, v1::PsReply& reply);

 private:
  absl::Status Begin(const v1::PsFollow& follow);
  absl::Status TakePiece(absl::string_view piece);
  absl::Status TakeFrames(absl::string_view frames);

  FollowedServer& server_;
  const int64_t connection_;
  const std::string path_;
  const ServerState::Options options_;
  bool following_ = false;
  // Requests that the next answer stands for.
  int unanswered_ = 0;
  // The snapshot that comes.
  Fd file_;
  int64_t position_ = 0;
  uint64_t missing_ = 0;
};

}  // namespace elasticdl::ps
