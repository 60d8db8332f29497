// Connects worlds in the background and owns the communicator in use, so that a
// message from the master can abort it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::rendezvous {

// The message for the master when a world, or connecting it, failed with
// `status`.
v1::WorkerMessage MakeWorldFailed(int64_t generation,
                                  const absl::Status& status);

// Thread-safe. Hear is called by the thread that receives from the master, Use
// and Drop by the one that trains.
class WorldLink {
 public:
  struct Options {
    int64_t worker_id = 0;
    collective::BackendOptions backend;
    // The job's token.
    std::string secret;
    // How long connecting to all members may take. Shorter than the master's
    // limit (MembershipOptions::connect_timeout), so that a member can report
    // an error before it is evicted.
    absl::Duration connect_timeout = absl::Seconds(10);
    // The same if NCCL connects, too, which opens devices and networks.
    absl::Duration nccl_connect_timeout = absl::Seconds(60);
    // How a member begins to connect; empty = BeginConnect with `backend`.
    std::function<absl::StatusOr<std::unique_ptr<collective::Connector>>(
        const collective::WorldSpec& world)>
        begin;
    // Runs functions that may block, one after the other. Empty = on the link's
    // own thread.
    std::function<void(std::function<void()>)> run;
  };
  // Both are called by Options::run and must not block. `send` sends to the
  // master; `connected` reports that a world can be used.
  WorldLink(Options options, std::function<void(v1::WorkerMessage)> send,
            std::function<void(int64_t generation)> connected);
  ~WorldLink();

  // Prepare (an urgent one aborts the communicator in use), Offers, Dissolve
  // and Stop; others are ignored. True when the message is for the link alone.
  bool Hear(const v1::MasterMessage& message);
  // Aborts the communicator in use; another one may follow.
  void Break(const std::string& reason);
  // Aborts the communicator in use and all that are being connected, now and
  // later.
  void AbortAll(const std::string& reason);

  // The communicator of a connected world becomes the one in use. Null if a
  // newer world has replaced it, or if it cannot be made, which the master is
  // told. The former one is kept until ForgetFormer: other members may still be
  // in its last round.
  std::shared_ptr<collective::Communicator> Use(int64_t generation);
  void ForgetFormer();
  // An urgent world that is newer than this one was announced.
  bool IsOvertaken(int64_t generation) const;
  // The communicator in use is that of this world, and no newer world has
  // replaced it.
  bool IsUsable(int64_t generation) const;
  // Closes the communicator in use: its other members notice. Those that can
  // shrink are kept for the next world.
  void Drop(const std::string& reason);

 private:
  // A communicator and its world.
  struct Made {
    std::shared_ptr<collective::Communicator> communicator;
    int64_t generation = 0;
    // By rank.
    std::vector<int64_t> members;
  };
  // A world that is to be made of another one.
  struct Shrinking {
    int64_t generation = 0;
    int64_t from = 0;
    std::vector<int64_t> members;
  };

  void OnPrepare(const v1::Prepare& prepare);
  void OnDissolve(const v1::Dissolve& dissolve);
  void Run(std::function<void()> work);
  void Begin(const v1::Prepare& prepare);
  void Connect(const v1::Offers& offers);
  // Makes `made_` of the one in use, or of the one that was dropped.
  absl::Status Shrink() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fail(int64_t generation, const absl::Status& status);

  const Options options_;
  const std::function<void(v1::WorkerMessage)> send_;
  const std::function<void(int64_t generation)> connected_;

  mutable Mutex mu_;
  // The newest generation that was announced; older ones are ignored.
  int64_t newest_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t newest_urgent_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t dissolved_ ABSL_GUARDED_BY(mu_) = 0;
  std::string aborted_ ABSL_GUARDED_BY(mu_);
  // Shared with the thread that is connecting.
  std::shared_ptr<collective::Connector> connector_ ABSL_GUARDED_BY(mu_);
  int64_t connector_generation_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<int64_t> connector_members_ ABSL_GUARDED_BY(mu_);
  bool connector_nccl_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Shrinking> shrinking_ ABSL_GUARDED_BY(mu_);
  Made made_ ABSL_GUARDED_BY(mu_);
  // Shared with the thread that trains.
  Made in_use_ ABSL_GUARDED_BY(mu_);
  // The last one in use, after Drop.
  Made dropped_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<collective::Communicator> former_ ABSL_GUARDED_BY(mu_);

  // Last: uses what is above. Without Options::run.
  Queue<std::function<void()>> jobs_;
  std::optional<Thread> thread_;
};

}  // namespace elasticdl::rendezvous
