// The state of a member in memory that outlives its process: whoever has a
// descriptor of it can read it after the process was killed
// (docs/design/0014-state-that-outlives-its-process.md).
//
// The arrays are those that the member trains with. A header says at any moment
// which step they are at. Before an update changes some numbers, their old
// values go to a small array (the *undo* array) that stays in the cache. So an
// update that broke off can be finished by others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"

namespace elasticdl::keep {

struct KeptHeader;

// What is known of a step besides the arrays.
struct Facts {
  int64_t step = 0;
  // The generation of the cold world that the model descends from.
  int64_t lineage = 0;
  // Of the update that led to the step.
  double learning_rate = 0;
  // How many records of each worker are in the model.
  std::vector<std::pair<int64_t, int64_t>> totals;
};

// Runs on the training thread.
class KeptState {
 public:
  static absl::StatusOr<std::unique_ptr<KeptState>> Create();
  // The memory is given back when nobody else has a descriptor of it.
  ~KeptState();
  KeptState(const KeptState&) = delete;
  KeptState& operator=(const KeptState&) = delete;

  // ---- once, in this order ----
  // Zeros, valid as long as this object. RESOURCE_EXHAUSTED if there are too
  // many arrays, for want of memory, or if the limit of this process for the
  // size of files (RLIMIT_FSIZE) is too low.
  absl::StatusOr<char*> AddArray(size_t bytes);
  // Adds the undo array.
  absl::Status AddUndo(size_t bytes);
  // No more arrays. `layout`: what their bytes mean; the same for members that
  // can take over each other's.
  absl::Status Seal(uint64_t layout);
  // The worker that this process is (CheckOwner).
  void SetOwner(int64_t worker_id);

  // A descriptor for others.
  int fd() const { return fd_.get(); }

  // ---- while it trains ----
  // The arrays are about to change in ways that nobody can finish.
  void Forget();
  // They are those of this step. If there are too many totals, nothing is kept;
  // false, once.
  bool Publish(const Facts& facts);
  // They are those of a step.
  bool whole() const;

  // An update of a whole state, in this order; without a whole state none of it
  // has an effect. The facts of the step that it leads to:
  bool Plan(const Facts& facts);
  // What it needs is in the arrays and changes no more.
  void BeginUpdate();
  // While it changes arrays, from their beginning to their end: whoever does it
  // notes the old values of some numbers, how many these are, and where: 2 *
  // place + 1 (they may have changed) or 2 * place (none from there on has).
  bool updating() const { return updating_; }
  char* undo() { return undo_; }
  std::atomic<uint64_t>& progress();
  std::atomic<uint64_t>& count();
  // All is done.
  void EndUpdate();

 private:
  KeptState(Fd fd, KeptHeader* header) : fd_(std::move(fd)), header_(header) {}
  // Writes to the note that is not in use. False: it does not fit.
  bool Write(const Facts& facts);

  const Fd fd_;
  KeptHeader* const header_;
  struct Mapping {
    void* begin;
    size_t bytes;
  };
  std::vector<Mapping> mappings_;
  uint64_t end_ = 0;
  char* undo_ = nullptr;
  int64_t planned_step_ = 0;
  bool planned_ = false;
  bool updating_ = false;
  bool told_too_many_ = false;
};

}  // namespace elasticdl::keep
