// Reads the log of a server while the server continues writing it, for a
// backup: the newest snapshot, then the entries after it as they are appended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/common/file.h"
#include "wire.h"

namespace elasticdl::ps {

// Thread-compatible.
class LogReader {
 public:
  // No snapshot may be finished meanwhile: that deletes files.
  static absl::StatusOr<LogReader> Open(const std::string& dir);

  // 0: there is none.
  uint64_t snapshot_bytes() const { return snapshot_bytes_; }
  // The next bytes of it; `piece` has at most `most`, and none at its end.
  absl::Status ReadSnapshot(size_t most, Buffer& piece);

  // The number of the entry that ReadEntries gives next. At first: as many as
  // the snapshot stands for.
  int64_t position() const { return position_; }
  // Whole frames of the entries below `end`, which are all written, until they
  // have about `most` bytes; one at least, if there is one. DATA_LOSS: they
  // were deleted because of newer snapshots.
  absl::Status ReadEntries(int64_t end, size_t most, Buffer& frames);
  // The next entry, whose frame has so many bytes, is not to be read. It must
  // be in the same file as the one before it.
  void Skip(uint64_t bytes);

 private:
  explicit LogReader(std::string dir) : dir_(std::move(dir)) {}
  absl::Status OpenSegment();
  // Moves on over the whole frames of entries below `end` at the front of these
  // bytes; returns their size. `wanted` grows if the first needs more.
  absl::StatusOr<size_t> TakeWhole(absl::string_view bytes, int64_t end,
                                   size_t& wanted);

  std::string dir_;
  Fd snapshot_;
  uint64_t snapshot_bytes_ = 0;
  uint64_t snapshot_at_ = 0;
  Fd segment_;
  int64_t position_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace elasticdl::ps
