// Synchronous training with parameter servers: which staged gradients make up
// the next version of the model (docs/design/0006-parameter-servers.md).
//
//   a gradient arrives                     then
//   -------------------------------------  --------------------------------
//   older than the tolerance allows        refused: it is computed again
//   else                                   it waits for the next version
//
//   enough wait, or nobody else can come   a version is made of the oldest ones
//   a version is made                      it is *open* until every server has
//                                          applied it; no other is made before
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "elasticdl/v1/ledger.pb.h"
#include "elasticdl/v1/ps.pb.h"

namespace elasticdl::master {

// A pure state machine. Thread-compatible.
class VersionRounds {
 public:
  struct Options {
    // Gradients in a version.
    int64_t grads_to_wait = 1;
    // How many versions a gradient may be behind.
    int64_t tolerance = 0;
    int servers = 1;
    // What the servers begin with.
    int64_t first_version = 0;
  };
  // One minibatch that every server has staged.
  struct Gradient {
    int64_t worker_id = 0;
    v1::LedgerRange range;
    int64_t base_version = 0;
    double learning_rate = 0;
    double loss = 0;
  };

  explicit VersionRounds(const Options& options)
      : options_(options), version_(options.first_version) {}

  // The last version that was made, and whether some server may not have it.
  int64_t version() const { return version_; }
  bool open() const { return open_.has_value(); }

  // False: it is too old. A worker has one gradient at a time; a second takes
  // the place of the first.
  bool Add(Gradient gradient);
  // The worker is lost: another one will compute its staged gradient again.
  void Drop(int64_t worker_id);
  bool Waits(int64_t worker_id) const;
  bool has_waiting() const { return !waiting_.empty(); }
  // All that wait, because the servers have dropped them. They are forgotten.
  std::vector<Gradient> TakeWaiting();

  // The gradients of the next version, if it can be made now; the version is
  // open then. `more`: somebody who has no gradient here may still send one.
  std::vector<Gradient> Next(bool more);
  // Those that became too old by a new version. They are forgotten.
  std::vector<Gradient> TakeStale();

  // What the servers are to apply; only while open().
  const v1::PsCommit& commit() const { return *open_; }
  v1::PsCommit& mutable_commit() { return *open_; }
  // The server has applied `version`. True: it was the last one to do so.
  bool Applied(int server, int64_t version);

  // Sets the number of servers. Not while a version is open.
  void SetServers(int servers) { options_.servers = servers; }

  // The last `commit` of an earlier master: servers may not have it. Without
  // pushes: they have it.
  void Resume(const v1::PsCommit& commit);

 private:
  bool TooOld(const Gradient& gradient) const {
    return gradient.base_version < version_ - options_.tolerance;
  }

  Options options_;
  int64_t version_;
  // In the order in which they came.
  std::deque<Gradient> waiting_;
  std::optional<v1::PsCommit> open_;
  // Servers that have applied the open version.
  std::set<int> applied_;
};

}  // namespace elasticdl::master
