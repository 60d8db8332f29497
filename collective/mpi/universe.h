// MPI in this process: loaded, initialised, usable or not.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "elasticdl/collective/mpi.h"
#include "elasticdl/common/mutex.h"
#include "mpi/plugin.h"
#include "mpi/thread.h"

namespace elasticdl::collective {

// Thread-safe.
class MpiUniverse {
 public:
  // Of a process that is in no universe.
  MpiUniverse() : usable_(false) {}
  MpiUniverse(const ElasticdlMpiTable* table, const ElasticdlMpiFacts& facts,
              std::unique_ptr<MpiThread> thread);

  // The ranks that can send to each other have the same id. Empty once MPI
  // cannot be used here.
  std::string id() const;
  // Of this process, in the universe.
  int rank() const { return facts_.rank; }
  int largest_tag() const { return facts_.largest_tag; }

  // Unless id() was always empty.
  const ElasticdlMpiTable& table() const { return *table_; }
  MpiThread& thread() { return *thread_; }

  // MPI cannot be used any more.
  void Lose(const absl::Status& why);
  // An operation failed although no death is known. One failure may be the
  // first sign of a death; two without a success in between are blamed on MPI.
  void NoteFailure(const absl::Status& why);
  void NoteSuccess() {
    if (failures_.load(std::memory_order_relaxed) != 0) failures_.store(0);
  }

  void CountWorld() { num_worlds_.fetch_add(1); }
  int64_t num_worlds() const { return num_worlds_.load(); }

 private:
  const ElasticdlMpiTable* const table_ = nullptr;
  const ElasticdlMpiFacts facts_ = {};
  const std::unique_ptr<MpiThread> thread_;
  // Fewer than the worlds without a step that cost a worker its place.
  static constexpr int kMostFailures = 2;
  std::atomic<bool> usable_;
  std::atomic<int> failures_{0};
  std::atomic<int64_t> num_worlds_{0};
};

}  // namespace elasticdl::collective
