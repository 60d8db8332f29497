// When and how a job with parameter servers saves its model
// (docs/design/0006-parameter-servers.md, "Checkpoints"). One worker reads the
// model from all servers while it does not change, and saves it with the ledger
// of the same step.
//
//   state      event                                    then
//   ---------  ---------------------------------------  ---------------------
//   kIdle      a checkpoint is due; asynchronous job    kPausing: every worker
//                                                       ends its minibatch
//   kIdle      due; nobody trains, or the master makes  kSaving
//              the versions and makes none
//   kPausing   all workers are paused                   kSaving: one of them
//                                                       reads the model
//   kPausing,  a worker crashed that was not paused:    kIdle; it is due again
//   kSaving    some servers may have its last push and
//              others not
//   kSaving    the model is read, or cannot be read     kIdle: all train on;
//                                                       the worker writes it
//   kSaving    the worker that reads it is gone         kIdle; it is due again
//   any        the worker that writes it is gone        it is due again
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

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
  enum class When {
    kTraining,
    // Training is interrupted here, by `stop` or because all workers leave.
    kBreakingOff,
    // It is over: what is suspect will never be committed.
    kOver,
  };

  // `start_step`: the job begins with a saved model of that step.
  // `first_pause`: no master before this one has used this number, or a larger
  // one, for a pause.
  ServerCheckpoints(const Options& options, int64_t start_step,
                    int64_t first_pause = 0)
      : options_(options), pause_(first_pause), last_step_(start_step) {}

  State state() const { return state_; }
  // Nobody may begin a minibatch; no version may be made.
  bool holds_training() const { return state_ != State::kIdle; }
  // Pauses are numbered: an answer to an earlier one says nothing.
  int64_t pause() const { return pause_; }
  // The worker that reads the model, and the one that writes it; -1 = none.
  int64_t saver() const { return saver_; }
  int64_t writer() const { return writer_; }
  // The model may contain records that are not in the ledger.
  bool has_suspects() const { return !suspects_.empty(); }
  // Some servers may have a minibatch that others lack, and lack for good if
  // its records were quarantined.
  bool versions_may_differ() const { return has_suspects() || torn_; }

  // Is it time for a checkpoint?
  bool Due(int64_t step, When when) const;
  // It is on the disk or on its way there, or it cannot be saved.
  bool Settled(int64_t step) const {
    return !options_.wanted || step <= last_step_;
  }
  void BeginPause();
  // The worker has ended its minibatch and reported it; it begins no other
  // before it hears Resume.
  void OnPaused(int64_t worker_id, int64_t number);
  bool IsPaused(int64_t worker_id) const {
    return paused_.count(worker_id) > 0;
  }
  void BeginSave(int64_t worker_id);
  // The model of `step` is read; the worker writes it now.
  void EndRead(int64_t step);
  // It is written, or cannot be read or written: it is not tried again.
  void End(int64_t worker_id, int64_t step);
  // The worker that writes it is lost, and its progress is unknown.
  void WriterLost();
  // It is tried again when that is possible.
  void Cancel();

  // A worker crashed before it reported these records: any of them may be in
  // the model of some or all servers. No checkpoint until they are committed,
  // unless training is over.
  void AddSuspect(const v1::LedgerRange& range);
  void OnCommit(const CommittedRange& range);
  // They will never be committed.
  void OnQuarantined(const v1::LedgerRange& range);

 private:
  // epoch, shard.
  using Place = std::pair<int32_t, std::string>;
  bool Overlaps(const v1::LedgerRange& range) const;
  void Clear(const std::string& shard, int32_t epoch, int64_t begin,
             int64_t end);

  const Options options_;
  State state_ = State::kIdle;
  int64_t pause_;
  std::set<int64_t> paused_;
  int64_t saver_ = -1;
  int64_t writer_ = -1;
  // The last step that was read, or that could not be, and the one before.
  int64_t last_step_;
  int64_t step_before_ = 0;
  // A suspect was quarantined.
  bool torn_ = false;
  // begin -> end; they do not overlap.
  std::map<Place, std::map<int64_t, int64_t>> suspects_;
};

}  // namespace elasticdl::master
