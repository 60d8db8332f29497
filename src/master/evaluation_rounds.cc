#include "evaluation_rounds.h"

#include <utility>
#include <vector>

#include "elasticdl/common/log.h"

namespace elasticdl::master {

void EvaluationRounds::OnDue(absl::Time now, Worker& worker,
                             const v1::EvaluationDue& due, const World& world) {
  worker.waiting = true;
  const int64_t step = due.step();
  if (evaluation_.running()) return;
  asked_ = false;
  if (evaluation_.DueAtStep(step) || evaluation_.DueByTime(now)) {
    const absl::Status status = evaluation_.Start(now, step);
    if (status.ok()) return;
    LogWarning("evaluation at step ", step, ": ", status.message());
  }
  // Nothing to evaluate, or it is done already: the workers continue.
  v1::EvaluationDone done;
  done.set_step(step);
  if (last_.step() == step) done = last_;
  // Always to all members: they must get it in the same order among their other
  // messages.
  if (released_ != std::make_pair(world.generation, step) ||
      due.heard() >= step) {
    return SendDone(done, world);
  }
  // It is on its way to this member.
  worker.waiting = false;
}

void EvaluationRounds::OnResult(const EvaluationResult& result,
                                const World& world) {
  v1::EvaluationDone done;
  done.set_step(result.version);
  done.mutable_metrics()->insert(result.metrics.begin(), result.metrics.end());
  last_ = done;
  SendDone(done, world);
}

void EvaluationRounds::Advance(absl::Time now, const World& world) {
  if (evaluation_.running()) return;
  if (evaluation_.DueAtEnd() && world.at_rest && registry_.any_ready()) {
    const absl::Status status = evaluation_.Start(now, tasks_.step());
    if (!status.ok()) LogWarning("last evaluation: ", status.message());
  } else if (world.shared_model) {
    if (tasks_.TrainingDone() || !registry_.any_ready() ||
        !(evaluation_.DueSince(tasks_.step()) || evaluation_.DueByTime(now))) {
      return;
    }
    const absl::Status status = evaluation_.Start(now, tasks_.step());
    if (!status.ok()) LogWarning("evaluation: ", status.message());
  } else if (evaluation_.DueByTime(now) && MayAsk()) {
    asked_ = true;
    v1::MasterMessage message;
    message.mutable_evaluate_now();
    port_.Send(registry_.ReadyConnections(), std::move(message));
  }
}

bool EvaluationRounds::MayAsk() const {
  return !asked_ && !tasks_.TrainingDone() && registry_.any_ready();
}

absl::Time EvaluationRounds::NextAsk() const {
  return MayAsk() ? evaluation_.NextDueTime() : absl::InfiniteFuture();
}

void EvaluationRounds::SendDone(const v1::EvaluationDone& done,
                                const World& world) {
  released_ = {world.generation, done.step()};
  v1::MasterMessage message;
  *message.mutable_evaluation_done() = done;
  std::vector<ConnectionId> ready;
  for (auto& [connection, worker] : registry_.workers()) {
    if (!worker.waiting && !tasks_.TrainingDone() &&
        !world.is_member(worker.id)) {
      continue;
    }
    worker.waiting = false;
    if (worker.ready) ready.push_back(connection);
  }
  port_.Send(ready, std::move(message));
}

}  // namespace elasticdl::master
