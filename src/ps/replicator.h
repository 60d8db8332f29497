// The role of one copy of a part of the model, for the threads of its server;
// for a primary also the connection to its backup (part_role.h): connects,
// sends the newest snapshot, the log after it and entries as they are appended,
// and receives what the backup has.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/net/socket.h"
#include "elasticdl/v1/ps.pb.h"
#include "log_reader.h"
#include "part_role.h"

namespace elasticdl::ps {

// Thread-safe. Locks: whoever changes the server's state holds its lock while
// it calls Assign, CheckPrimary, OnAppended or CheckFollow, so that no entry is
// accepted under one role and appended under another.
class Replicator {
 public:
  struct Options {
    int part = 0;
    // The job's token.
    std::string secret;
    // Takes the lock of the server's state.
    std::function<absl::StatusOr<LogReader>()> open_log;
    // What the master is to hear. Must not block.
    std::function<void(const v1::PsPartState& state)> tell;
  };
  explicit Replicator(Options options);
  ~Replicator();

  // False: it is old. There may be something to Ask then.
  bool Assign(const v1::PsAssignment& assignment, int64_t position);
  // Asks the master what there is to ask, if anything.
  void Ask();
  // UNAVAILABLE unless this copy is the primary; its term.
  absl::StatusOr<int64_t> CheckPrimary() const;
  absl::Status CheckFollow(int64_t term) const;
  int64_t term() const;
  // Whoever appends an entry calls Send or Await then.
  void OnAppended(int64_t position);
  // A backup has followed its primary.
  void OnFollowed();
  // Files of the log from this position on are still to be read.
  int64_t reads_from() const;
  // Sends the entry before `position`, of this term, unless earlier ones are
  // still to be sent: then, or without a frame, it is left to the thread that
  // feeds the backup. Spares that thread's waking up and reading the log. The
  // entry must not be the first of a file of the log.
  void Send(int64_t term, int64_t position, std::vector<iovec> frame);
  // Waits, for `most` at most, until the entries of this term up to this
  // position may be acknowledged. UNAVAILABLE: not by this copy, or not yet.
  absl::Status Await(int64_t term, int64_t position, absl::Duration most);
  void Describe(v1::PsCopy& copy) const;

  // Everybody who waits goes home.
  void Stop();

 private:
  static constexpr int64_t kReadsNothing = std::numeric_limits<int64_t>::max();

  void Run();
  // Unless there is another assignment than the first so many.
  void PauseUntil(absl::Time end, int64_t assigned);
  // Until the connection breaks or is not wanted any more.
  absl::Status Feed(const std::string& address, int64_t term);
  absl::Status Synchronize(net::Socket& socket, LogReader& log, int64_t term);
  absl::Status SendEntries(net::Socket& socket, LogReader& log,
                           const std::string& address, int64_t term);
  // Sends entries; to be called by one thread at a time.
  static absl::Status SendFrames(net::Socket& socket, std::vector<iovec> frames,
                                 bool current);
  void HearAcks(net::Socket& socket, int64_t term);
  absl::StatusOr<v1::PsReply> Expect(net::Socket& socket, int64_t term,
                                     absl::Duration timeout);
  bool Wanted(const std::string& address, int64_t term) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !stopped_ && role_.primary() && role_.term() == term &&
           role_.backup_address() == address;
  }
  void Tell(PartRole::Tell tell);
  // Who waits for an entry to be acknowledged.
  struct Waiter {
    int64_t term = 0;
    CondVar decided;
  };
  // Wakes those whose entries are acknowledged by now: they are the first, and
  // the others would only look and wait again.
  void WakeDecided() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // After a change of the role.
  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable Mutex mu_;
  // Of roles and entries, for the thread that feeds the backup.
  CondVar changed_;
  PartRole role_ ABSL_GUARDED_BY(mu_);
  // By the position that they wait for.
  std::multimap<int64_t, Waiter*> waiters_ ABSL_GUARDED_BY(mu_);
  int64_t appended_ ABSL_GUARDED_BY(mu_) = 0;
  // How many assignments there were.
  int64_t assigned_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  // Why the connection is of no more use, as far as the reader of answers
  // knows.
  absl::Status heard_ ABSL_GUARDED_BY(mu_);
  // The backup knows a newer term.
  bool superseded_ ABSL_GUARDED_BY(mu_) = false;
  int64_t reads_from_ ABSL_GUARDED_BY(mu_) = kReadsNothing;
  // When the backup answered last.
  absl::Time last_ack_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  // The connection to the backup (null: none), and what it was made for.
  net::Socket* socket_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::string fed_address_ ABSL_GUARDED_BY(mu_);
  int64_t fed_term_ ABSL_GUARDED_BY(mu_) = 0;
  // What the feeder reads while it waits for entries; null otherwise.
  LogReader* waiting_ ABSL_GUARDED_BY(mu_) = nullptr;
  // Somebody sends an entry in its place.
  bool sending_ ABSL_GUARDED_BY(mu_) = false;
  Thread feeder_;
};

}  // namespace elasticdl::ps
