// --ps_audit: which pushes a server has applied, one JSON object per line:
//
//   server, epoch, shard, begin, end  the push
//   version                           the server's, with it
//   entry                             number of the entry in the server's log
//   catch_up                          true, or not there: the server had it
//                                     already; it was applied to buckets that
//                                     have come from another server since
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/v1/ps.pb.h"

namespace elasticdl::ps {

// Thread-compatible. Each entry is written once, also when it is applied again
// from the log after a restart.
class PushAudit {
 public:
  // Goes on behind the last whole line.
  static absl::StatusOr<std::unique_ptr<PushAudit>> Open(
      const std::string& path, int server);

  // An entry was applied. `before`, `after`: the server's versions.
  absl::Status Write(int64_t number, const v1::PsEntry& entry, int64_t before,
                     int64_t after);
  // Empties it: the lines are of another run.
  absl::Status Clear();

 private:
  PushAudit(std::string path, int server)
      : path_(std::move(path)), server_(server) {}
  absl::Status FindEnd();

  const std::string path_;
  const int server_;
  Fd fd_;
  // Entries below are written.
  int64_t next_ = 0;
};

}  // namespace elasticdl::ps
