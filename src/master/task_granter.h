// Which worker gets which task, and how many tasks a worker holds.
//
// A worker holds one task in use and at least one to read ahead, so that a step
// does not wait for the master; if tasks are short, as many as it trains in 100
// ms. Near the end of the data no worker holds tasks that another could train.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "crash_blame.h"
#include "job_output.h"
#include "rate_meter.h"
#include "task_manager.h"
#include "worker_registry.h"

namespace elasticdl::master {

// Thread-compatible.
class TaskGranter {
 public:
  struct Options {
    // Tasks of one kind that a worker holds as a rule.
    int window = 2;
    int64_t global_batch_size = 0;
    // What one worker puts into a step if there is no global batch.
    int64_t worker_batch_size = 0;
  };
  // What the granter must know about the active world.
  struct World {
    // Else the job only evaluates or predicts, and there is no world.
    bool training = false;
    // Members of the world that trains; 0 = there is none.
    size_t size = 0;
    std::function<bool(int64_t worker_id)> is_member;
    // The members run no steps until the master sends a message.
    bool at_rest = false;
    // The model is on parameter servers: any worker can evaluate it.
    bool shared_model = false;
    // Nobody may get new training data: the model is about to be saved.
    bool holds_training = false;
    // The last model is not on the disk yet.
    bool last_checkpoint_due = false;
  };

  // All must outlive the granter.
  TaskGranter(const Options& options, TaskManager& tasks,
              WorkerRegistry& registry, const CrashBlame& blame,
              WorkerPort& port)
      : options_(options),
        tasks_(tasks),
        registry_(registry),
        blame_(blame),
        port_(port) {}

  // This many records were added to the model.
  void OnCommit(absl::Time now, int64_t records) { rate_.Add(now, records); }

  // Grants what is available, one task to each worker in turn: when few are
  // left, no worker holds a task that another waits for.
  void Grant(absl::Time now, const World& world);
  // The same for one worker, when nothing has changed for the others.
  void GrantOne(absl::Time now, const World& world, ConnectionId connection);

  // Records that need no more work: in the model, predicted or quarantined.
  int64_t RecordsDone() const;

 private:
  // At most one task.
  bool GrantTo(absl::Time now, const World& world, ConnectionId connection,
               Worker& worker);
  TaskKinds KindsFor(const World& world, const Worker& worker) const;
  // It may be given one more task; it holds less than it should as a rule.
  bool HasRoom(const World& world, int64_t worker_id, v1::TaskType type) const;
  bool WantsMore(const World& world, int64_t worker_id,
                 v1::TaskType type) const;
  bool IsCareful(v1::TaskType type) const;
  // How many training tasks a worker should hold.
  int TrainingWindow(absl::Time now, const World& world);
  void SendNoMoreTasks(ConnectionId connection, Worker& worker);

  const Options options_;
  TaskManager& tasks_;
  WorkerRegistry& registry_;
  const CrashBlame& blame_;
  WorkerPort& port_;
  RateMeter rate_{absl::Seconds(2)};
  // The last TrainingWindow.
  int training_window_ = 0;
};

}  // namespace elasticdl::master
