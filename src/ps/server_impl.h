// What server.cc (requests), server_connections.cc, server_snapshots.cc,
// server_memory.cc and server_replicated.cc (primary and backup) share.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "byte_budget.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log_limit.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/shared_mutex.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/net/socket.h"
#include "elasticdl/ps/server.h"
#include "follower.h"
#include "push_audit.h"
#include "push_log.h"
#include "replicator.h"
#include "server_state.h"
#include "wire.h"

namespace elasticdl::ps {

// Thread-safe.
class ServerImpl : public Server, private FollowedServer {
 public:
  explicit ServerImpl(ServerOptions options)
      : options_(std::move(options)),
        budget_(RequestBytes(options_)),
        state_(StateOptions(options_)) {}
  ~ServerImpl() override;

  absl::Status SetUp();
  uint16_t port() const override { return listener_.port(); }
  int64_t version() const override {
    ReaderMutexLock lock(state_mu_);
    return state_.version();
  }
  absl::Status Apply(const v1::PsEntry& entry,
                     absl::string_view payload) override;
  Moving moving() const override;
  Stats stats() const override;
  absl::Status Settle() override;
  void Assign(const v1::PsAssignment& assignment) override;
  v1::PsCopy Describe() const override;
  absl::Status Wait() override;
  void Stop() override { End(absl::OkStatus()); }

 private:
  struct Connection {
    // It has not shown the token yet. Set before its thread starts.
    std::atomic<bool> greeting = true;
    net::Socket socket;
    Thread thread;
  };

  static uint64_t RandomNumber();
  static ServerState::Options StateOptions(const ServerOptions& options) {
    return {options.server, options.memory_limit};
  }

  // FollowedServer.
  absl::Status BeginFollow(int64_t connection, int64_t term) override;
  absl::Status Replace(int64_t connection, ServerState state,
                       const std::string& snapshot, int64_t position) override;
  absl::Status Follow(int64_t connection, const v1::PsEntry& entry,
                      const Frame& frame) override;
  absl::StatusOr<int64_t> Followed(int64_t connection, bool current) override;
  int64_t FollowedTerm() const override { return replicator_->term(); }
  absl::Status CheckFollow(int64_t connection) const
      ABSL_SHARED_LOCKS_REQUIRED(state_mu_);

  static uint64_t RequestBytes(const ServerOptions& options);
  // Of a request that is about to be read, with its answer.
  absl::StatusOr<ByteBudget::Share> MakeRoom(const v1::PsRequest& request,
                                             uint64_t payload_bytes);
  absl::Status OpenLog();
  // Both copies are complete: a log that could not be read is of no more use.
  void RemoveAside();
  // A server that cannot write its audit ends.
  void NoteAudit(const absl::Status& written)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mu_);
  size_t KeptBytes() const;
  void EndOldestGreeting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AcceptAll();
  void Serve(int64_t id, Connection& connection);
  absl::Status ServeOne(net::Socket& socket, Follower* follower,
                        Buffer& payload, Buffer& answer);
  void HandleEntry(const v1::PsEntry& entry, absl::string_view payload,
                   v1::PsReply& reply);
  // `ask`: absl::Status(const ServerState&), fills the answer. `durable`: it is
  // given when the backup has all that it was read from.
  template <typename Ask>
  void HandleRead(const Ask& ask, bool durable, v1::PsReply& reply,
                  Buffer& answer);
  // `attempt`: absl::Status(). Repeated while it is UNAVAILABLE because a
  // bucket or a map is on its way here.
  template <typename Attempt>
  absl::Status AwaitMove(const Attempt& attempt);
  void NoteMove();
  // UNAVAILABLE: not by this copy, or not any more.
  absl::Status CheckAnswers() const ABSL_SHARED_LOCKS_REQUIRED(state_mu_);
  // Where in the log, and under which term, an answer is true: then it waits
  // for the backup.
  struct Place {
    int64_t term = 0;
    int64_t position = 0;
    // Of the last entry before it, if it was appended for this answer.
    std::optional<FrameHead> head = std::nullopt;
  };
  absl::StatusOr<Place> CheckPlace() const
      ABSL_SHARED_LOCKS_REQUIRED(state_mu_);
  // The same after an entry was appended.
  absl::StatusOr<Place> PlaceOfLast() const
      ABSL_SHARED_LOCKS_REQUIRED(state_mu_);
  // Header and payload: of the entry that place.head belongs to.
  absl::Status Await(const Place& place, absl::Duration most,
                     absl::string_view header = "",
                     absl::string_view payload = "");
  // The log has grown long enough for one.
  bool SnapshotDue() const ABSL_SHARED_LOCKS_REQUIRED(state_mu_);
  void WantSnapshot();
  // `header`: the entry, serialized.
  absl::Status Accept(const v1::PsEntry& entry, absl::string_view header,
                      absl::string_view payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mu_);
  // After Check and Append, which returned `logged`.
  absl::Status ApplyLogged(const absl::Status& logged, const v1::PsEntry& entry,
                           absl::string_view payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mu_);
  // server_memory.cc. An entry was applied; there were so many bytes before.
  void NoteMemory(const v1::PsEntry& entry, size_t before)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mu_);
  // Before a push is answered: waits for as long as pushes are to be slowed
  // down.
  void SlowDown();
  void HandleStatus(const v1::PsStatusRequest& request, v1::PsReply& reply);
  void WriteSnapshots();
  void FillMap(v1::PsReply& reply) const ABSL_SHARED_LOCKS_REQUIRED(state_mu_);
  // The first call decides what Wait returns.
  void End(absl::Status why);
  void Reap() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ServerOptions options_;
  const uint64_t incarnation_ = RandomNumber();
  net::Listener listener_;
  ByteBudget budget_;

  mutable SharedMutex state_mu_;
  ServerState state_ ABSL_GUARDED_BY(state_mu_);
  // Half an entry may be in the state or in the log: nobody may see them.
  bool broken_ ABSL_GUARDED_BY(state_mu_) = false;
  // That memory is nearly used up.
  bool warned_ ABSL_GUARDED_BY(state_mu_) = false;
  // Null: none.
  std::unique_ptr<PushLog> log_ ABSL_GUARDED_BY(state_mu_);
  // Null: none.
  std::unique_ptr<PushAudit> audit_ ABSL_GUARDED_BY(state_mu_);
  // For the audit of a server without a log.
  int64_t entries_ ABSL_GUARDED_BY(state_mu_) = 0;
  // A backup: whose entries count, and of which term.
  int64_t followed_connection_ ABSL_GUARDED_BY(state_mu_) = -1;
  int64_t followed_term_ ABSL_GUARDED_BY(state_mu_) = 0;
  std::atomic<int64_t> pulls_ = 0;
  std::atomic<int64_t> pushes_ = 0;
  std::atomic<int64_t> repeated_ = 0;
  std::atomic<int> greetings_ = 0;
  // As many as connections_, without its lock.
  std::atomic<uint64_t> num_connections_ = 0;
  LogLimit refusals_;
  // There is a log that could not be read.
  std::atomic<bool> aside_ = false;
  // No push is answered before: memory is nearly used up.
  // In nanoseconds since 1970.
  std::atomic<int64_t> slow_until_ = 0;
  // Maps and buckets that came. Grows under mu_.
  std::atomic<int64_t> moves_ = 0;

  Mutex mu_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
  bool snapshot_wanted_ ABSL_GUARDED_BY(mu_) = false;
  int64_t next_connection_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, std::unique_ptr<Connection>> connections_
      ABSL_GUARDED_BY(mu_);
  // Whose threads are about to end.
  std::vector<int64_t> finished_ ABSL_GUARDED_BY(mu_);

  // Null: there is no other copy.
  std::unique_ptr<Replicator> replicator_;

  // Wakes the thread that waits for a snapshot.
  Fd stop_event_;
  Thread snapshots_;
  Thread acceptor_;
};

}  // namespace elasticdl::ps
