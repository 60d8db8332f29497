// Which checkpoints belong to the model that a job trains, and whether its
// newest step is saved.
//
// When the last copy of the model is lost, the job is rolled back to an older
// checkpoint and continues in a new lineage (checkpoint::Lineage, numbered by
// the cold world that it started from). Checkpoints that the lost model had
// saved after that step are abandoned, even if they appear on the disk later:
// their writer may be on another machine and not know of the rollback yet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/v1/journal.pb.h"

namespace elasticdl::master {

// Thread-compatible. Pure: no files, no time.
class CheckpointHistory {
 public:
  // `start_step`: the step of the checkpoint that the job started from; -1: it
  // started with fresh weights.
  CheckpointHistory(std::string run, int64_t start_step)
      : run_(std::move(run)),
        start_step_(start_step),
        saved_step_(start_step),
        settled_step_(start_step) {}

  // The job begins with another checkpoint. Before its first save.
  void SetStart(int64_t step) { start_step_ = step; }

  const std::string& run() const { return run_; }
  // Of the current model; 0 before the first.
  int64_t lineage() const {
    return parts_.empty() ? 0 : parts_.back().generation;
  }
  // Every world reports the lineage of its model. A new lineage starts where
  // the history ends.
  void SetLineage(int64_t generation);

  // A save has ended; saves may end in any order. Empty `error`: success.
  // Returns true if a newer step than before is saved.
  bool Report(int64_t lineage, int64_t step, const std::string& error);
  // The newest step that is saved, or whose save has failed.
  int64_t settled_step() const { return settled_step_; }
  int64_t saved_step() const { return saved_step_; }
  // A step of this run is on the disk.
  bool has_saved() const { return saved_step_ > start_step_; }
  // Why that save failed; empty = it succeeded.
  const std::string& error() const { return error_; }

  // Those of `found` that belong to a model at `step`, newest first.
  std::vector<checkpoint::Version> Usable(
      const std::vector<checkpoint::Version>& found, int64_t step) const;
  // Rollback: the model is restored from this version. Null: from what the job
  // started with.
  void FallBack(const checkpoint::Version* to);
  // The last rollback's version: the next cold world is restored from it.
  const std::optional<checkpoint::Version>& base() const { return base_; }

  v1::CheckpointState ToProto() const;
  void FromProto(const v1::CheckpointState& state);

 private:
  // Steps up to `end` belong to this lineage. The last part has no end.
  struct Part {
    int64_t generation = 0;
    int64_t end = 0;
  };
  bool Contains(int64_t generation, int64_t step) const;

  // Not const, so that a history can be copied for a search.
  std::string run_;
  int64_t start_step_;
  // Oldest first; generations grow, and so do the ends.
  std::vector<Part> parts_;
  int64_t saved_step_;
  int64_t settled_step_;
  std::string error_;
  std::optional<checkpoint::Version> base_;
};

v1::JournalRecord::FellBack ToProto(
    const std::optional<checkpoint::Version>& base);
std::optional<checkpoint::Version> FromProto(
    const v1::JournalRecord::FellBack& base, const std::string& run);

}  // namespace elasticdl::master
