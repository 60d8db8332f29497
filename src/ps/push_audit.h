// --ps_audit: which pushes a server has applied, and to which buckets; one JSON
// object per line (docs/formats.md):
//
//   server, run, term, begins   entries from this number on follow, which the
//                               server accepts in this term (without backups:
//                               after each loss of its log)
//   server, run, term, follows  the same, of a backup that gets them
//   server, epoch, shard, begin, end, version, entry
//                               a push. catch_up, buckets: the server had it
//                               already, and applied it to these buckets only;
//                               but: these buckets had it already
//   server, map, gets or gives, entry
//                               buckets came, or went
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/v1/ps.pb.h"
#include "entry_effect.h"

namespace elasticdl::ps {

// Thread-compatible. Each entry of a term is written once, also when it is
// applied again from the log after a restart.
class PushAudit {
 public:
  struct Options {
    std::string path;
    int server = 0;
    // What another run has written is removed.
    std::string run;
  };
  // Goes on behind the last whole line.
  static absl::StatusOr<std::unique_ptr<PushAudit>> Open(Options options);

  // The entries that come are accepted here in this term, or in the next one
  // (0); `position` is the number of the first.
  absl::Status Begin(int64_t term, int64_t position) {
    return WriteTerm("begins", term, position);
  }
  // They come from the primary of this term, after the state of so many.
  absl::Status Follow(int64_t term, int64_t position) {
    return WriteTerm("follows", term, position);
  }
  // An entry was applied. `version`: the server's, with it.
  absl::Status Write(int64_t number, const v1::PsEntry& entry, int64_t version,
                     const EntryEffect& effect);

 private:
  explicit PushAudit(Options options) : options_(std::move(options)) {}
  absl::Status FindEnd();
  absl::Status WriteTerm(const char* what, int64_t term, int64_t position);
  // All at once: who is killed here leaves all of them or none.
  absl::Status WriteLines(const std::string& lines);

  const Options options_;
  Fd fd_;
  // Of the last lines; 0: there are none.
  int64_t term_ = 0;
  // Entries below are written.
  int64_t next_ = 0;
};

}  // namespace elasticdl::ps
