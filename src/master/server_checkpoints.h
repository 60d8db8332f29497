// When and how a job with parameter servers saves its model
// (docs/design/0006-parameter-servers.md, "Checkpoints"). One worker reads the
// model from all servers at a moment when it does not change, and saves it with
// the ledger of that moment.
//
//   state      event                                    then
//   ---------  ---------------------------------------  ---------------------
//   kIdle      a checkpoint is due; asynchronous job    kPausing: every worker
//                                                       ends its minibatch
//   kIdle      due; nobody trains, or the master makes  kSaving
//              the versions and makes none
//   kPausing   all workers are paused                   kSaving: one of them
//                                                       reads the model
//   kPausing,  a worker crashed: some servers may have  kIdle; it is due again
//   kSaving    its last push and others not
//   kSaving    the model is read, or cannot be read     kIdle: all train on
//   kSaving    the worker that reads it is gone         kIdle; it is due again
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "elasticdl/v1/ledger.pb.h"
#include "task_types.h"

namespace elasticdl::master {

// A pure state machine. Thread-compatible.
class ServerCheckpoints {
 public:
  struct Options {
    // Save at every multiple of so many steps; 0 = only the last step.
    int64_t interval = 0;
    // False: there is no place for checkpoints.
    bool wanted = false;
  };
  enum class State { kIdle, kPausing, kSaving };

  // `start_step`: the job begins with a saved model of that step.
  ServerCheckpoints(const Options& options, int64_t start_step)
      : options_(options), last_step_(start_step) {}

  State state() const { return state_; }
  // Nobody may begin a minibatch; no version may be made.
  bool holds_training() const { return state_ != State::kIdle; }
  // Pauses are numbered: an answer to an earlier one says nothing.
  int64_t pause() const { return pause_; }
  // The worker that reads the model.
  int64_t saver() const { return saver_; }

  // Is it time for a checkpoint? `last`: training is over.
  bool Due(int64_t step, bool last) const;
  void BeginPause();
  void BeginSave(int64_t worker_id);
  // The model of `step` is read, or cannot be: it is not tried again.
  void End(int64_t step);
  // It is tried again when that is possible.
  void Cancel();

  // The worker crashed before it reported these records, the next of its
  // tasks: no checkpoint until they are committed.
  void AddSuspect(const v1::LedgerRange& range);
  void OnCommit(const CommittedRange& range);
  // They will never be committed.
  void OnQuarantined(const v1::LedgerRange& range);

 private:
  // shard, epoch, first record.
  using Place = std::tuple<std::string, int32_t, int64_t>;
  void Clear(const std::string& shard, int32_t epoch, int64_t begin,
             int64_t end);

  const Options options_;
  State state_ = State::kIdle;
  int64_t pause_ = 0;
  int64_t saver_ = -1;
  // The last step that was read, or that could not be.
  int64_t last_step_;
  std::set<Place> suspects_;
};

}  // namespace elasticdl::master
