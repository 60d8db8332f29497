// A worker's client for the parameter servers: splits requests by server, sends
// them to all servers in parallel, and retries when a server was unreachable.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/net/socket.h"
#include "elasticdl/ps/bucket.h"
#include "elasticdl/v1/ps.pb.h"

namespace elasticdl::ps {

// Rows of one table: `ids` ascend, none is twice; row i is
// rows[i * dim, (i + 1) * dim).
struct PullRows {
  uint32_t table = 0;
  absl::Span<const int64_t> ids;
  float* rows = nullptr;
};
struct PushRows {
  uint32_t table = 0;
  absl::Span<const int64_t> ids;
  const float* gradients = nullptr;
};

// Some rows of a table, with the slots of the optimizer in its order: row i is
// values[i * dim, (i + 1) * dim), and so in each slot. `ranks`: which rows are
// evicted first; none if the table evicts no rows. Only valid during the call.
using RowSink = std::function<absl::Status(
    absl::Span<const int64_t> ids, const float* values,
    absl::Span<const float* const> slots, absl::Span<const int64_t> ranks)>;

// Thread-compatible, except Cancel.
class Client {
 public:
  struct Options {
    std::string secret;
    // Where server i is now. Asked before each connection: a server that was
    // replaced may be elsewhere. Must return within `timeout`.
    std::function<absl::StatusOr<net::Address>(int server,
                                               absl::Duration timeout)>
        find;
    // How long one call may take altogether, absences of servers included.
    absl::Duration patience = absl::Minutes(10);
    // How long somebody else may answer at a server's address: another job may
    // have got the port of a server that died.
    absl::Duration stranger_patience = absl::Seconds(15);
  };
  Client(Options options, BucketMap map);
  ~Client();

  // Tells all servers what the model is and which buckets they hold.
  absl::Status Define(const v1::PsDefinition& definition);
  // `values`: all dense values in the definition's order. The first worker's
  // win; whoever comes later learns the values by Pull.
  absl::Status SetInitialValues(const float* values);
  // Those of a checkpoint. `slots`: as many arrays as the optimizer has slots,
  // in its order, or none for its initial ones. The servers' versions start at
  // `version`.
  absl::Status SetInitialValues(const float* values,
                                absl::Span<const float* const> slots,
                                int64_t version);
  // Rows of the checkpoint of this version, before SetInitialValues; in any
  // order, none twice. May be repeated, also after a restore that was broken
  // off. Does nothing on servers that have initial values. `values` and
  // `slots` (all or none, as above) are floats, and `ranks` int64 (null: none),
  // at any address, because those of a file may lie anywhere.
  absl::Status RestoreRows(int64_t version, uint32_t table,
                           absl::Span<const int64_t> ids, const void* values,
                           absl::Span<const void* const> slots,
                           const void* ranks = nullptr);

  // Rows of the tables, and dense values into `values` where a server has newer
  // ones than this client has seen (null: no dense values). Returns the lowest
  // version of a server.
  absl::StatusOr<int64_t> Pull(float* values, absl::Span<const PullRows> rows);

  // What a push needs besides its gradients. Fields of v1::PsPush; the map's
  // version is filled in, and the base version of one that is not staged.
  // OK: every server of one map has it, be it from this call or from an earlier
  // one. `gradients` null: no dense part. `base`: by server, the version that
  // they were computed on; empty: that of the last Pull.
  absl::Status Push(const v1::PsPush& push, const float* gradients,
                    absl::Span<const PushRows> rows,
                    absl::Span<const int64_t> base = {});
  // By server, the version of the last Pull.
  std::vector<int64_t> versions() const;

  // From now on, reading does not mind servers of different versions.
  void AllowDifferentVersions() { versions_may_differ_ = true; }
  // Reading for a checkpoint, at a moment when nobody pushes. Each returns the
  // servers' version; ABORTED when they have several, or when it changes
  // meanwhile.
  // Array 0: all dense values in the definition's order. Then each slot's.
  absl::StatusOr<int64_t> ReadDense(std::vector<std::vector<float>>& arrays);
  // All stored rows of a table, each once, some at a time. Ends with the first
  // error of `sink`.
  absl::StatusOr<int64_t> ReadTable(uint32_t table, const RowSink& sink);

  // What each server says of itself.
  absl::StatusOr<std::vector<v1::PsReply>> Status(bool digest);

  // The server is elsewhere now (Options::find): nobody waits for an answer
  // from where it was. Any thread.
  void OnMoved(int server);
  // All calls under way and to come fail with CANCELLED. Any thread.
  void Cancel();

  // Of the newest map that is known here.
  int64_t map_version() const { return map_.version(); }

 private:
  // Asks other servers over the same connections.
  friend class BucketMover;
  class Lane;
  struct Call;

  // Repeats `attempt` when a server answers with a newer map: everything is cut
  // anew, and goes to all servers of that map.
  absl::Status WithMap(const std::function<absl::Status()>& attempt);
  // Takes the newer map. False: none has come.
  bool TakeNewerMap();
  // A server's answer may have a newer map.
  void NoteMap(const v1::PsReply& reply);
  bool has_newer_map() const { return newer_map_.version() > map_.version(); }
  void SetLayout();
  std::vector<Call> MakeCalls() const;
  // `answer_timeout`: without a byte of the answer.
  absl::Status Run(std::vector<Call>& calls, absl::Duration answer_timeout);
  absl::Status Run(std::vector<Call>& calls);
  // Asks one who has answered for a newer map.
  void AskForMap(const std::vector<Call>& calls);
  absl::Status Round(std::vector<Call>& calls, absl::Time end,
                     absl::Duration answer_timeout);
  // Which server holds each id of a table.
  void Split(uint32_t table, absl::Span<const int64_t> ids,
             std::vector<std::vector<uint32_t>>& positions) const;
  // INVALID_ARGUMENT unless it is that of all slots or none.
  absl::Status CheckSlots(size_t count) const;
  absl::StatusOr<int64_t> PullOnce(float* values,
                                   absl::Span<const PullRows> rows);
  absl::Status PushOnce(const v1::PsPush& push, const float* gradients,
                        absl::Span<const PushRows> rows,
                        absl::Span<const int64_t> base);
  absl::StatusOr<int64_t> ReadDenseOnce(
      std::vector<std::vector<float>>& arrays);
  absl::Status DefineOnce();
  absl::Status RestoreSome(int64_t version, uint32_t table,
                           absl::Span<const int64_t> ids, const char* values,
                           const std::vector<const char*>& slots,
                           const char* ranks);
  // Gives the rows of a server's last answer to `sink`.
  absl::Status HandOver(size_t server, uint32_t table, const v1::PsReply& reply,
                        const RowSink& sink);
  // The version of all answers.
  absl::StatusOr<int64_t> CommonVersion(const std::vector<Call>& calls) const;

  Mutex mu_;
  // Ends pauses between two tries.
  CondVar wake_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  // Calls of OnMoved.
  int64_t moved_ ABSL_GUARDED_BY(mu_) = 0;

  const Options options_;
  BucketMap map_;
  // What a server has answered with.
  BucketMap newer_map_;
  v1::PsDefinition definition_;
  // Of the optimizer.
  size_t slots_ = 0;
  bool versions_may_differ_ = false;
  // By server. Added and removed under the lock, used by the thread of the
  // client.
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace elasticdl::ps
