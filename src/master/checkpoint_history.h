// Which checkpoints belong to the model that a job trains, and whether its
// newest step is saved.
//
// When the last copy of the model is lost, the job goes on from an older
// checkpoint in a new lineage (checkpoint::Lineage, numbered by the cold world
// that began it). What the lost one had saved beyond that point is no part of
// the job's history any more, even if it appears on the disk later: its writer
// may be on another machine and not know yet.
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
  // `start_step`: the job began with a checkpoint of this step; -1: with fresh
  // weights.
  CheckpointHistory(std::string run, int64_t start_step)
      : run_(std::move(run)),
        start_step_(start_step),
        saved_step_(start_step),
        settled_step_(start_step) {}

  const std::string& run() const { return run_; }
  // Of the model that is trained now; 0 before the first.
  int64_t lineage() const {
    return parts_.empty() ? 0 : parts_.back().generation;
  }
  // Every world tells the lineage of its model. A newer one than before began
  // where the history ends.
  void SetLineage(int64_t generation);

  // A save has ended, in any order and perhaps long after it began; `error`
  // empty: well. True: a newer step than before is saved.
  bool Report(int64_t lineage, int64_t step, const std::string& error);
  // The newest step that is saved, or whose save has failed.
  int64_t settled_step() const { return settled_step_; }
  // A step of this run is on the disk.
  bool has_saved() const { return saved_step_ > start_step_; }
  // Why that failed; empty = it is saved.
  const std::string& error() const { return error_; }

  // Those of `found` that belong to a model at `step`, newest first.
  std::vector<checkpoint::Version> Usable(
      const std::vector<checkpoint::Version>& found, int64_t step) const;
  // The model is lost; it is restored from this version. Null: from what the
  // job began with.
  void FallBack(const checkpoint::Version* to);
  // The last of those; what the next cold world is restored from.
  const std::optional<checkpoint::Version>& base() const { return base_; }

  v1::CheckpointState ToProto() const;
  void FromProto(const v1::CheckpointState& state);

 private:
  // The steps up to `end` belong to this lineage. The last part has no end.
  struct Part {
    int64_t generation = 0;
    int64_t end = 0;
  };
  bool Contains(int64_t generation, int64_t step) const;

  // Constant; not const, so that a history can be copied for a search.
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
