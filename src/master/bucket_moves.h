// Which parameter server holds which bucket, and how buckets move when the
// number of servers changes (docs/design/0006-parameter-servers.md, "Moving
// buckets"). A move is a sequence of *steps*. Each step is sent to all servers
// that are or were in the map, and is *open* until all of them have done it.
//
//   state       event                                 then
//   ----------  ------------------------------------  -------------------------
//   settled     SetTarget: another number             waiting
//   waiting     every server that is to be is there,  open: a new map moves a
//               and the rest since the last step is   few buckets; those that
//               over; buckets are to move             moved last are dropped
//   waiting     no bucket is to move any more         open: those that moved
//                                                     last are dropped
//   open        SetTarget                             open; counts for the next
//                                                     step
//   open        a server comes (back)                 it is told again
//   open        every server has done it              waiting
//   open        the same, of a step that only drops   settled: servers beyond
//                                                     the map may go
#pragma once

#include <cstdint>
#include <functional>
#include <set>

#include "absl/time/time.h"
#include "elasticdl/ps/bucket.h"
#include "elasticdl/v1/journal.pb.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::master {

// A pure state machine. Thread-compatible.
class BucketMoves {
 public:
  // Settled on the map with which a job begins.
  explicit BucketMoves(int servers);

  const ps::BucketMap& map() const { return map_; }
  v1::PsMap MapProto() const;
  int target() const { return target_; }
  // Servers 0 .. servers()-1 must exist.
  int servers() const;
  // A step is open: some server may refuse or delay every request.
  bool open() const { return open_; }
  // There is something to do.
  bool moving() const { return open_ || target_ != map_.servers() || keeps_; }
  // Some buckets have moved, or are about to.
  bool under_way() const { return open_ || keeps_; }
  // A part of the model would be lost with this server's log.
  bool Holds(int server) const;

  void SetTarget(int servers) { target_ = servers; }

  // When the next step may begin at the earliest.
  absl::Time next() const;
  bool CanBegin(absl::Time now,
                const std::function<bool(int server)>& is_there) const;
  // Only if CanBegin. The caller records State() and tells step() to servers
  // 0 .. participants()-1.
  void Begin(absl::Time now);
  const v1::MoveBuckets& step() const { return step_; }
  int participants() const { return participants_; }
  // A server has done it. True: it was the last, and the step is done.
  bool Done(absl::Time now, int server, const v1::ServerMoved& moved);

  v1::BucketState State() const;
  // The last state that an earlier master recorded.
  void Resume(const v1::BucketState& state);

 private:
  // The owners of the next step: some buckets are where they belong.
  ps::BucketMap NextMap() const;

  ps::BucketMap map_;
  int target_;
  // Servers keep buckets that have arrived elsewhere.
  bool keeps_ = false;
  bool open_ = false;
  v1::MoveBuckets step_;
  int participants_;
  std::set<int> done_;
  // How many buckets the next step moves. Grows while steps are short.
  int batch_ = 1;
  absl::Time began_ = absl::InfinitePast();
  absl::Time rest_until_ = absl::InfinitePast();
};

}  // namespace elasticdl::master
