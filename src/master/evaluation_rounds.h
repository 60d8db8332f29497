// When workers evaluate and when they continue training: the messages of an
// evaluation. (EvaluationService decides when one is due and adds up the
// metrics.)
//
//   a worker waits at a step             then
//   -----------------------------------  -------------------------------------
//   an evaluation is due there           one is started; EvaluationDone goes to
//                                        all members when it has ended
//   one is running                       it waits for the same EvaluationDone
//   none is due, or it is done already   EvaluationDone goes to all at once
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/time/time.h"
#include "elasticdl/v1/master.pb.h"
#include "evaluation.h"
#include "job_output.h"
#include "task_manager.h"
#include "worker_registry.h"

namespace elasticdl::master {

// Thread-compatible.
class EvaluationRounds {
 public:
  // What it needs to know about the active world.
  struct World {
    // 0 = none.
    int64_t generation = 0;
    std::function<bool(int64_t worker_id)> is_member;
    // The members run no steps until the master tells them to.
    bool at_rest = false;
    // The model is on parameter servers: any worker can evaluate it at any time
    // while others train.
    bool shared_model = false;
  };

  // All must outlive this.
  EvaluationRounds(EvaluationService& evaluation, TaskManager& tasks,
                   WorkerRegistry& registry, WorkerPort& port)
      : evaluation_(evaluation),
        tasks_(tasks),
        registry_(registry),
        port_(port) {}

  // The worker waits at a step until it is told to continue.
  void OnDue(absl::Time now, Worker& worker, const v1::EvaluationDue& due,
             const World& world);
  // An evaluation has succeeded: all members continue.
  void OnResult(const EvaluationResult& result, const World& world);
  // Starts the last evaluation, or asks the workers for one that is due by
  // time.
  void Advance(absl::Time now, const World& world);
  // When the next one by time may be requested.
  bool MayAsk() const;
  absl::Time NextAsk() const;

 private:
  // Tells all members to continue. All of them get it in the same order among
  // their other messages.
  void SendDone(const v1::EvaluationDone& done, const World& world);

  EvaluationService& evaluation_;
  TaskManager& tasks_;
  WorkerRegistry& registry_;
  WorkerPort& port_;
  // For members that arrive after the end of an evaluation.
  v1::EvaluationDone last_;
  // The world and step of the last EvaluationDone.
  std::pair<int64_t, int64_t> released_ = {-1, -1};
  // The workers were asked for one by time.
  bool asked_ = false;
};

}  // namespace elasticdl::master
