// The log of a parameter server: all entries that make up its state, in files
// of one folder, and snapshots that replace the entries before them.
//
//   snapshot-N   the state after N entries (snapshot.h)
//   log-N        the entries from number N on, in frames (log_frame.h)
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "elasticdl/common/file.h"
#include "log_frame.h"
#include "server_state.h"

namespace elasticdl::ps {

// Thread-compatible. When Append returns, the kernel has the entry: it survives
// this process, but not a crash of the machine.
class PushLog {
 public:
  struct Options {
    std::string dir;
    // A snapshot is due when so many bytes were appended since the last one,
    // and twice as many as that one has; of a large one, some GiB or half as
    // many.
    int64_t snapshot_bytes = int64_t{64} << 20;
    // Told of each entry that is applied from the log, with the state after it.
    // Null: nobody.
    std::function<absl::Status(int64_t number, const v1::PsEntry& entry,
                               const ServerState& state)>
        replayed = nullptr;
  };
  // Opens or creates the folder and brings `state`, which is new, to the end of
  // the log. An incomplete last entry is dropped: it was never acknowledged. So
  // is an end of zeros: the machine lost power, and with it the entries
  // acknowledged last; the master detects this by comparing versions. DATA_LOSS
  // for a log with a hole or a bad entry before its end. One process at a time:
  // FAILED_PRECONDITION if another one has it open.
  static absl::StatusOr<std::unique_ptr<PushLog>> Open(
      Options options, ServerState::Options state_options, ServerState& state);
  ~PushLog();

  // For one of two copies: moves the files of a log that Open cannot read to a
  // folder in `dir`, where Open does not see them, so that the copy can begin
  // anew and nothing is gone before it has everything again. If an earlier log
  // is there, that one is kept: the later one was never complete.
  static absl::Status PutAside(const std::string& dir);
  static bool HasAside(const std::string& dir);
  static absl::Status RemoveAside(const std::string& dir);

  // When it fails (the disk is full), nothing of the entry stays. It does not
  // fail because of a snapshot that is being written: that is given up.
  absl::Status Append(absl::string_view header, absl::string_view payload);
  // The same for a whole frame with the number position(), which was parsed.
  absl::Status AppendFrame(absl::string_view frame);
  // Forgets everything and goes on after this snapshot of `position` entries, a
  // file of the same folder. Empty: from nothing, with position 0.
  absl::Status Restart(const std::string& snapshot, int64_t position);

  // How many entries there are.
  int64_t position() const { return position_; }
  int64_t bytes() const { return bytes_; }
  // Of the entry that Append wrote last; none if it is the first of a file.
  std::optional<FrameHead> last_head() const {
    if (static_cast<int64_t>(last_head_.FrameBytes()) >= segment_bytes_) {
      return std::nullopt;
    }
    return last_head_;
  }

  // ---- snapshots ----
  // `patience`: only when the log is so many times as long.
  bool WantsSnapshot(int64_t patience = 1) const;
  // A child process writes the state, which is that of position(), while this
  // one goes on. It is killed when the calling thread ends. The log continues
  // in a new file. No other may be under way.
  absl::Status BeginSnapshot(const ServerState& state);
  bool snapshotting() const { return child_ > 0; }
  // Becomes readable when the child is done; only while snapshotting().
  int snapshot_fd() const { return child_fd_.get(); }
  // Waits for the child. After success older files are deleted, except those
  // from `keep` on, which somebody still reads, for some snapshots more.
  absl::Status FinishSnapshot(
      int64_t keep = std::numeric_limits<int64_t>::max());

 private:
  explicit PushLog(Options options) : options_(std::move(options)) {}
  absl::Status Recover(ServerState::Options state_options, ServerState& state);
  absl::Status Replay(const std::string& path, bool last, ServerState& state);
  absl::Status Write(std::vector<iovec> parts, uint64_t bytes);
  absl::Status TryWrite(std::vector<iovec> parts);
  absl::Status OpenSegment();
  absl::Status Fork(const ServerState& state);
  std::string PathOf(absl::string_view kind,
                     const absl::AlphaNum& number) const;
  void DeleteBefore(int64_t snapshots, int64_t entries);
  // Ends the child, if there is one, and what it has written.
  void KillSnapshot();
  // A snapshot has failed.
  void Postpone();

  const Options options_;
  Fd lock_;
  Fd fd_;
  int64_t position_ = 0;
  // Of the current file.
  int64_t segment_bytes_ = 0;
  // Of the last entry.
  FrameHead last_head_;
  // Since the last snapshot, and of that.
  int64_t bytes_ = 0;
  int64_t last_snapshot_bytes_ = 0;
  // How much longer the log may grow because snapshots failed.
  int64_t postponed_ = 0;
  // Half an entry could not be taken back.
  bool broken_ = false;

  int child_ = 0;
  Fd child_fd_;
  int64_t child_position_ = 0;
  int64_t child_log_bytes_ = 0;
  // Where the last snapshots were made.
  std::deque<int64_t> cuts_;
  std::string scratch_;
};

}  // namespace elasticdl::ps
