// When workers evaluate and when they train on: the part of an evaluation that
// is talked over with them. (EvaluationService knows when one is due and adds
// up the metrics.)
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
  // What must be known of the world that trains.
  struct World {
    // 0 = none.
    int64_t generation = 0;
    std::function<bool(int64_t worker_id)> is_member;
    // The members do no steps until they hear more.
    bool at_rest = false;
    // The model is on parameter servers: any worker can evaluate it at any
    // time, while others train on.
    bool shared_model = false;
  };

  // All must outlive this.
  EvaluationRounds(EvaluationService& evaluation, TaskManager& tasks,
                   WorkerRegistry& registry, WorkerPort& port)
      : evaluation_(evaluation),
        tasks_(tasks),
        registry_(registry),
        port_(port) {}

  // The worker stands at a step and waits to hear that it may go on.
  void OnDue(absl::Time now, Worker& worker, const v1::EvaluationDue& due,
             const World& world);
  // An evaluation has ended well: all go on.
  void OnResult(const EvaluationResult& result, const World& world);
  // Begins the last evaluation, or asks the workers for one that is due by
  // time.
  void Advance(absl::Time now, const World& world);
  // One by time may be asked for; when.
  bool MayAsk() const;
  absl::Time NextAsk() const;

 private:
  // Lets all members go on, as one message among others that all of them hear
  // in the same order.
  void SendDone(const v1::EvaluationDone& done, const World& world);

  EvaluationService& evaluation_;
  TaskManager& tasks_;
  WorkerRegistry& registry_;
  WorkerPort& port_;
  // For members that come late to an evaluation that is over.
  v1::EvaluationDone last_;
  // The world and step of the last EvaluationDone.
  std::pair<int64_t, int64_t> released_ = {-1, -1};
  // The workers were asked for one by time.
  bool asked_ = false;
};

}  // namespace elasticdl::master
