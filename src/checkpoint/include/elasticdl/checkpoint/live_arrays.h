// Arrays that are saved as they were at one step while training continues to
// change them. Nothing is copied at that step. Before a slice that was not read
// yet is changed, it is copied (*put aside*;
// docs/design/0013-save-without-a-pause.md).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "elasticdl/common/mutex.h"

namespace elasticdl::checkpoint {

// Memory in which slices are put aside. It is got once and used by one save
// after the other, so that who changes the arrays does not wait for the kernel
// to clear pages, which takes four times as long as the copy. Thread-safe.
class AsideRoom {
 public:
  // Touches all of it. There may be none, for want of memory.
  explicit AsideRoom(size_t bytes);
  // Empty: somebody has it already.
  absl::Span<char> Take();
  void GiveBack() { taken_ = false; }

 private:
  struct Free {
    void operator()(char* memory) const;
  };
  std::unique_ptr<char, Free> memory_;
  size_t bytes_ = 0;
  std::atomic<bool> taken_ = false;
};

struct LiveOptions {
  // Of each array.
  size_t slice_bytes = 1 << 20;
  // What may be put aside at the same time. Who wants to change more waits
  // until it is read.
  size_t most_aside_bytes = 64 << 20;
  // For so long at most without any progress of the reader; then the save is
  // given up.
  absl::Duration patience = absl::Minutes(1);
  // For what is put aside; null, or in use: memory is got when it is needed.
  // Whoever saves is its other owner.
  std::shared_ptr<AsideRoom> room;
};

// Thread-safe: one thread changes the arrays, another one reads them. Both
// should go through the slices in the same order.
class LiveArrays {
 public:
  // `arrays` have the same size. They must stay where they are until this is
  // finished().
  LiveArrays(std::vector<absl::Span<const char>> arrays,
             const LiveOptions& options);
  ~LiveArrays();
  LiveArrays(const LiveArrays&) = delete;
  LiveArrays& operator=(const LiveArrays&) = delete;

  // ---- who changes them ----
  size_t num_slices() const { return num_slices_; }
  // The bytes of each array that slice `index` has: [begin, end).
  size_t begin(size_t index) const { return index * options_.slice_bytes; }
  size_t end(size_t index) const;
  // To be called before any byte of this slice is changed. Waits if too much
  // has been put aside.
  void BeforeChange(size_t index);
  // All of it changes now, or nobody wants to wait: there is nothing to read
  // any more. Does not wait for the disk.
  void GiveUp(const std::string& reason);
  // The same if BeforeChange waits at this moment. Any thread.
  void GiveUpIfWaiting(const std::string& reason);
  // Nothing will be read any more, so all may be changed.
  bool finished() const;
  // Why it was given up; OK if it was not.
  absl::Status given_up() const;
  // How long BeforeChange took altogether.
  absl::Duration waited() const;

  // ---- who reads them ----
  // Copies `size` bytes at `from` as they were. What is not in the arrays is
  // taken to be the same until GiveUp. Each byte of the arrays is read once.
  // CANCELLED after GiveUp: what was read may be of any time.
  absl::Status Read(const char* from, size_t size, char* to);
  // All is read.
  absl::Status Finish();

 private:
  // All arrays of one slice.
  struct Slice {
    // Bytes that are still to be read.
    size_t left = 0;
    // Put aside: array after array.
    char* copy = nullptr;
  };

  size_t bytes(size_t index) const {
    return (end(index) - begin(index)) * arrays_.size();
  }
  absl::Status ReadSlice(size_t array, size_t offset, size_t size, char* to);
  bool Full(size_t size) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Needed(size_t index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  size_t block_bytes() const { return options_.slice_bytes * arrays_.size(); }
  void PutAside(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FreeBlocks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WaitForRoom(size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUpLocked(const std::string& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after construction.
  const std::vector<absl::Span<const char>> arrays_;
  const LiveOptions options_;
  size_t array_bytes_ = 0;
  size_t num_slices_ = 0;

  mutable Mutex mu_;
  CondVar changed_;
  std::vector<Slice> slices_ ABSL_GUARDED_BY(mu_);
  // The reader copies from the arrays right now; from this slice, if that is
  // one.
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  size_t reading_slice_ ABSL_GUARDED_BY(mu_) = 0;
  // A slice is being put aside.
  bool copying_ ABSL_GUARDED_BY(mu_) = false;
  size_t aside_ ABSL_GUARDED_BY(mu_) = 0;
  // Blocks of one size, in which slices are put aside, and those of them that
  // are not in use.
  bool has_room_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::unique_ptr<char[]>> more_ ABSL_GUARDED_BY(mu_);
  std::vector<char*> spare_ ABSL_GUARDED_BY(mu_);
  // Grows with everything that is read.
  size_t read_ ABSL_GUARDED_BY(mu_) = 0;
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status given_up_ ABSL_GUARDED_BY(mu_);
  absl::Duration waited_ ABSL_GUARDED_BY(mu_);
};

// The reader's side: however its work ends, it is over when this goes away.
// Thread-compatible.
class LiveReader {
 public:
  // Whoever changes the arrays is their second owner.
  explicit LiveReader(std::shared_ptr<LiveArrays> arrays)
      : arrays_(std::move(arrays)) {}
  ~LiveReader() { arrays_->Finish().IgnoreError(); }
  LiveReader(const LiveReader&) = delete;
  LiveReader& operator=(const LiveReader&) = delete;

  absl::Status Read(const char* from, size_t size, char* to) {
    return arrays_->Read(from, size, to);
  }
  absl::Status Finish() { return arrays_->Finish(); }

 private:
  const std::shared_ptr<LiveArrays> arrays_;
};

}  // namespace elasticdl::checkpoint
