// A JobController whose searches for checkpoints are answered after each call,
// as a fast disk would; or later, as a slow one.
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "checkpoint_search.h"
#include "job_controller.h"

namespace elasticdl::master {

class ControllerHandle {
 public:
  // `now` is read at each answer.
  explicit ControllerHandle(const absl::Time& now) : now_(now) {}

  // The controller for the length of a call.
  class Call {
   public:
    explicit Call(ControllerHandle& handle) : handle_(handle) {}
    ~Call() {
      if (!handle_.slow) handle_.Answer();
    }
    JobController* operator->() { return handle_.controller_.get(); }

   private:
    ControllerHandle& handle_;
  };
  Call operator->() { return Call(*this); }
  JobController& operator*() { return *controller_; }
  ControllerHandle& operator=(std::unique_ptr<JobController> controller) {
    queries_.clear();
    controller_ = std::move(controller);
    return *this;
  }

  // For Options::search_checkpoint.
  std::function<void(CheckpointQuery)> search() {
    return
        [this](CheckpointQuery query) { queries_.push_back(std::move(query)); };
  }
  size_t num_queries() const { return queries_.size(); }
  void Answer() {
    while (!queries_.empty()) {
      const CheckpointAnswer answer =
          *SearchCheckpoint(store, queries_.front());
      queries_.pop_front();
      controller_->OnCheckpointFound(now_, answer);
    }
  }

  CheckpointStore store;
  // Answer() is for the test to call.
  bool slow = false;

 private:
  const absl::Time& now_;
  std::deque<CheckpointQuery> queries_;
  std::unique_ptr<JobController> controller_;
};

}  // namespace elasticdl::master
