// A parameter server: the state machine of server_state.h behind sockets, with
// its log on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/net/socket.h"
#include "elasticdl/v1/ps.pb.h"

namespace elasticdl::ps {

struct ServerOptions {
  // Its number, from 0; with a backup: that of its part of the model.
  int server = 0;
  // Port 0: a free one is chosen.
  net::Address address;
  // The job's token.
  std::string secret;
  // Where the log is; empty = none, and a restart begins from nothing.
  std::string log_dir;
  int64_t snapshot_bytes = int64_t{64} << 20;
  // Of values, rows and slots; 0 = as much as there is.
  size_t memory_limit = 0;
  // Of requests and answers that are held at once; others wait before they are
  // read. 0: an eighth of memory_limit, or 1 GiB without one.
  size_t request_bytes = 0;
  // A file for the names of the pushes that are applied; "" = none.
  std::string audit;
  // Names the run of the job there.
  std::string run;
  // The part has two copies, and this is one of them: it serves nobody before
  // Assign gives it a role. A damaged log is put aside, because the other copy
  // may have all of it, and removed when both have. Needs a log_dir.
  bool replicated = false;
  // What the master is to hear. Must not block; any thread.
  std::function<void(const v1::PsPartState& state)> tell;
};

// Thread-safe.
class Server {
 public:
  // Reads the log, if there is one, and listens.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options);
  virtual ~Server() = default;

  virtual uint16_t port() const = 0;
  // Pushes that are in the model.
  virtual int64_t version() const = 0;
  // An entry that comes from the master or with a bucket. ALREADY_EXISTS: the
  // server has it. NOT_FOUND: a staged push that it needs is missing. Others as
  // in PsReply.
  virtual absl::Status Apply(const v1::PsEntry& entry,
                             absl::string_view payload = "") = 0;
  // What there is to do for BucketMover.
  struct Moving {
    bool defined = false;
    // 0: none yet.
    int64_t map_version = 0;
    std::set<int> awaited;
    // Buckets that are kept, and the map with which they left.
    std::map<int, int64_t> leaving;
  };
  virtual Moving moving() const = 0;
  // Waits until the backup, if there is one, has all that is here now.
  // UNAVAILABLE: this copy is not the primary any more.
  virtual absl::Status Settle() = 0;

  // What it has, and requests of workers since it began.
  struct Stats {
    int64_t rows = 0;
    // Of dense values and tables, without the optimizer's state of the former.
    int64_t bytes = 0;
    // What counts for the memory limit, and the limit; 0: none.
    int64_t limited_bytes = 0;
    int64_t limit_bytes = 0;
    int64_t pulls = 0;
    int64_t pushes = 0;
  };
  virtual Stats stats() const = 0;

  // ---- replicated ----
  // What this copy is from now on. A primary that begins to answer tells so.
  virtual void Assign(const v1::PsAssignment& assignment) = 0;
  // What it is; the address is left out.
  virtual v1::PsCopy Describe() const = 0;

  // Waits until the server cannot go on (no memory, the log cannot be written)
  // and says why; OK after Stop.
  virtual absl::Status Wait() = 0;
  // Ends all connections. Idempotent, does not block.
  virtual void Stop() = 0;
};

}  // namespace elasticdl::ps
