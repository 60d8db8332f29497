// A worker's part in saving the model: copies it at the steps that are due,
// gets the ledger of the same step from the master, and saves both in the
// background.
//
//   Begin: copy ──► the step is settled: ask ──► OnLedger: save ──► OnSaveDone
//
// A large model is not copied. Its save begins at once, runs during the
// following steps, and waits for the ledger at its end
// (docs/design/0013-save-without-a-pause.md):
//
//   Begin: save ──► the step is settled: ask ──► OnLedger ──► OnSaveDone
//
// A copy whose world ends before its step is settled is dropped, and so is one
// whose ledger the master refuses: it is unknown which records are in it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "elasticdl/checkpoint/async_saver.h"
#include "elasticdl/checkpoint/late_ledger.h"
#include "elasticdl/checkpoint/live_arrays.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/rendezvous/elastic_loop.h"
#include "elasticdl/v1/job.pb.h"
#include "elasticdl/v1/master.pb.h"
#include "event.h"
#include "replica.h"
#include "training_session.h"

namespace elasticdl::worker {

// How long a save at the end may take before the worker gives it up.
inline constexpr absl::Duration kSaveTimeout = absl::Minutes(10);

v1::WorkerMessage MakeCheckpointDone(int64_t step, int64_t lineage,
                                     const absl::StatusOr<std::string>& path,
                                     absl::Duration took);

// Runs on the training thread, except HurryUp.
class CheckpointCoordinator {
 public:
  struct Deps {
    // Steps between checkpoints; 0 = only at the end.
    int64_t interval = 0;
    Replica& replica;
    TrainingSession& session;
    // Gets kSaveDone.
    EventQueue& events;
    // Called by the saver's thread, too.
    SendFunction send;
    const Clock& clock;
  };
  // A null `saver`: the job saves nothing. What `deps` refers to must outlive
  // the coordinator.
  CheckpointCoordinator(const Deps& deps,
                        std::unique_ptr<checkpoint::Saver> saver);

  // ---- events ----
  // The worker is level in a new world.
  void OnEntered(const rendezvous::World& world);
  // The model was updated. An error is the device's: the model cannot be
  // copied.
  absl::Status OnStep();
  // After any round.
  void OnRound();
  // False: the copy was dropped, and a world that came since relies on it. What
  // made it due must be looked at again.
  bool OnLedger(const v1::LedgerReply& reply);
  void OnSaveDone();
  // A new master knows nothing of ledgers that the old one was asked for.
  void OnMasterBack();

  // Saves the model at hand, unless that is done.
  absl::Status SaveThis();
  // Nothing is copied, asked for or being saved.
  bool idle() const {
    return !unsettled_.has_value() && waiting_.empty() && saves_under_way_ == 0;
  }
  // Waits until what was given to the saver is on the disk.
  void Flush();
  // Something is to be done now that should not wait for the disk. Any thread.
  void HurryUp(const std::string& reason);

 private:
  // Of a step whose ledger is not known yet.
  struct Taken {
    int64_t lineage = 0;
    // Either a copy, or what the save of the model waits for.
    std::optional<checkpoint::OwnedSnapshot> copy;
    std::optional<checkpoint::LedgerPromise> promise;
  };

  checkpoint::LiveOptions MakeLiveOptions();
  bool Due() const;
  absl::Status Begin();
  absl::Status BeginLive(Taken& taken);
  void AskLedger();
  void Submit(int64_t step, checkpoint::OwnedSnapshot snapshot);

  const Deps deps_;
  const std::unique_ptr<checkpoint::Saver> saver_;
  const checkpoint::Saver::LiveRule live_rule_;
  // The model is large: it is not copied.
  const bool saves_live_;
  const checkpoint::LiveOptions live_options_;
  // Whose step is not settled yet; and those that wait for their ledger, by
  // step. They must go before the saver does.
  std::optional<Taken> unsettled_;
  int64_t unsettled_step_ = -1;
  std::map<int64_t, Taken> waiting_;
  // The newest step that is saved or on its way to it; -1 = none.
  int64_t last_step_ = -1;
  // The world in which a ledger was asked for last.
  int64_t asked_generation_ = 0;
  // Given to the saver and not heard of since.
  int64_t saves_under_way_ = 0;
  // The newest save that was not copied.
  Mutex mu_;
  std::shared_ptr<checkpoint::LiveArrays> live_ ABSL_GUARDED_BY(mu_);
  int64_t live_step_ = -1;
};

}  // namespace elasticdl::worker
