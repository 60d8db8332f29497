// A server's part in moving buckets, as requested by the master
// (v1::MoveBuckets): drops buckets that have arrived elsewhere, adopts the new
// map, fetches its new buckets, and reports that the step is done.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/ps/server.h"
#include "elasticdl/ps/server_book.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::ps {

// What a server has to do next for a step.
struct MoveAction {
  enum class Kind {
    kForget,  // drop a bucket that left with `map_version`
    kDefine,  // get the definition from server `from`
    kMap,     // take the step's map
    kFetch,   // get a bucket from server `from`
    kDone,    // say that all is done
  };
  Kind kind = Kind::kDone;
  int bucket = 0;
  int64_t map_version = 0;
  int from = 0;
};
// Pure. INTERNAL when the step does not say where a bucket is.
absl::StatusOr<MoveAction> NextMoveAction(int server,
                                          const v1::MoveBuckets& step,
                                          const Server::Moving& moving);

// Thread-safe. Has its own thread, because the server that holds a bucket may
// be unreachable.
class BucketMover {
 public:
  struct Options {
    // Its number; with a backup: that of its part of the model.
    int server = 0;
    // The job's token.
    std::string secret;
    // Called on the mover's thread.
    std::function<void(v1::ServerMoved moved)> tell;
  };
  // `server` must outlive it; `servers`: where the others are.
  BucketMover(Options options, Server& server, const v1::Servers& servers);
  ~BucketMover();

  // A request to a server that has moved fails now: the host where it was may
  // be gone without a word.
  void SetServers(const v1::Servers& servers);

  // Takes the place of a step that is under way: the master makes one at a
  // time, and says it again when either side was restarted.
  void Begin(v1::MoveBuckets step);
  // The server is not the primary of its part any more: whoever is carries on.
  void Drop();
  // Idempotent, does not block.
  void Stop();

 private:
  class Source;

  void Run();
  // UNAVAILABLE when another server is away.
  absl::Status Carry(const v1::MoveBuckets& step);
  absl::Status Act(const v1::MoveBuckets& step, const MoveAction& action);
  absl::Status LearnDefinition(int from);
  absl::Status FetchBucket(const v1::PsFetch& fetch, int from);
  // True: there is another step or none any more, or it is to stop.
  bool WaitBeforeNextTry(absl::Duration time);

  const Options options_;
  Server& server_;
  ServerBook book_;
  const std::unique_ptr<Source> source_;

  Mutex mu_;
  CondVar changed_;
  std::optional<v1::MoveBuckets> step_ ABSL_GUARDED_BY(mu_);
  bool dropped_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  // Last: it uses what is above.
  Thread thread_;
};

}  // namespace elasticdl::ps
