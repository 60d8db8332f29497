// The connection of a worker or of a parameter server to its master, across
// restarts of the master: one stream after another.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/rendezvous/member_list.h"
#include "elasticdl/rendezvous/stream_client.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::rendezvous {

// Thread-safe, but only one thread at a time may call Attach, Reattach and
// Receive.
class MasterLink {
 public:
  // `options.connect_timeout` limits connecting the first stream, and waiting
  // for the answer to each Hello.
  explicit MasterLink(StreamClient::Options options)
      : options_(std::move(options)) {}

  // Opens a stream, sends Hello and waits for Welcome. FAILED_PRECONDITION: the
  // master refused this worker. UNAUTHENTICATED: wrong token. UNIMPLEMENTED:
  // different version. CANCELLED after End.
  absl::StatusOr<v1::Welcome> Attach(int64_t worker_id);
  // The same with another first message. Retries for up to `patience`, unless
  // the error is permanent.
  absl::StatusOr<v1::Welcome> Attach(const v1::WorkerMessage& hello,
                                     absl::Duration patience);
  // After the stream has ended: attaches to the restarted master as worker
  // `worker_id`. Retries for up to `patience`, unless the error is permanent.
  absl::Status Reattach(int64_t worker_id, absl::Duration patience);

  // These use the last stream that got a Welcome; see StreamClient. A Prepare
  // that is received has all its members.
  void Send(v1::WorkerMessage message);
  std::optional<v1::MasterMessage> Receive(absl::Duration timeout);
  bool ended() const;
  absl::Status status() const;

  // Closes the link for good. Messages that were sent are delivered if that is
  // possible within `timeout`. Calls that are waiting in the functions above
  // return soon.
  void End(absl::Duration timeout);

 private:
  // Shared, because a thread may still use a stream while a new one replaces
  // it.
  using StreamPtr = std::shared_ptr<StreamClient>;

  absl::StatusOr<v1::Welcome> Open(const v1::WorkerMessage& hello,
                                   absl::Duration connect_timeout);
  StreamPtr stream() const;
  // False: its members are not known here, and it was asked for again.
  bool ReadMembers(v1::Prepare& prepare);
  // Registers `stream` so that End closes it; CANCELLED after End. `welcomed`:
  // Send and Receive use it from now on.
  absl::Status Take(const StreamPtr& stream, bool welcomed);

  const StreamClient::Options options_;
  mutable Mutex mu_;
  // The stream in use, and the one that Open is setting up.
  StreamPtr stream_ ABSL_GUARDED_BY(mu_);
  StreamPtr opening_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  // Of the stream in use.
  MemberListReader members_ ABSL_GUARDED_BY(mu_);
};

}  // namespace elasticdl::rendezvous
