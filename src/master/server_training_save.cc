// When the model on the parameter servers is saved, by whom, and who may leave
// meanwhile (ServerCheckpoints has the states).
#include <algorithm>
#include <utility>

#include "server_training.h"

namespace elasticdl::master {

void ServerTraining::AdvanceSave(absl::Time now) {
  using State = ServerCheckpoints::State;
  if (saves_.writer() >= 0 && !registry_.IsAttached(saves_.writer())) {
    saves_.WriterLost();
  }
  if (saves_.state() == State::kSaving &&
      !registry_.IsReachable(saves_.saver())) {
    CancelSave(now);
  }
  if (saves_.state() == State::kIdle) {
    const ServerCheckpoints::When when = SaveMoment();
    if (versions_.open() || moves_.open() || !saves_.Due(tasks_.step(), when)) {
      return;
    }
    // The model of a synchronous job changes only when this master says so.
    if (when == ServerCheckpoints::When::kOver || !options_.use_async) {
      return BeginSave(now);
    }
    saves_.BeginPause();
    v1::MasterMessage message;
    message.mutable_pause()->set_number(saves_.pause());
    port_.Send(registry_.ReadyConnections(), std::move(message));
  }
  if (saves_.state() != State::kPausing) return;
  for (const auto& [connection, worker] : registry_.workers()) {
    // Who has no data cannot push; who wants to leave does not push any more.
    if (worker.ready && !worker.stop_sent && !worker.leaving &&
        !saves_.IsPaused(worker.id) &&
        tasks_.NumHeld(worker.id, v1::TRAINING) > 0) {
      return;
    }
  }
  BeginSave(now);
}

ServerCheckpoints::When ServerTraining::SaveMoment() const {
  using When = ServerCheckpoints::When;
  if (tasks_.TrainingDone() && AtRest()) return When::kOver;
  return host_.IsStopping() || NobodyStays() ? When::kBreakingOff
                                             : When::kTraining;
}

bool ServerTraining::NobodyStays() const {
  bool goes = false;
  bool starts = false;
  for (const auto& [connection, worker] : registry_.workers()) {
    if (worker.leaving || worker.stop_sent) {
      goes = true;
    } else if (worker.ready) {
      return false;
    } else {
      // It has nothing, and may be told to leave before it has.
      starts = true;
    }
  }
  return goes || !starts;
}

bool ServerTraining::BrokenOff() const {
  return host_.IsStopping() && saves_.Settled(tasks_.step());
}

void ServerTraining::AdvanceLeavers(absl::Time now) {
  const bool wanted =
      NobodyStays() && !saves_.Settled(tasks_.step()) && !saves_.has_suspects();
  std::vector<int64_t> released;
  for (const auto& [connection, worker] : registry_.workers()) {
    const bool needed =
        wanted || worker.id == saves_.saver() || worker.id == saves_.writer();
    if (worker.leaving && !worker.stop_sent && !needed) {
      released.push_back(worker.id);
    }
  }
  for (const int64_t worker_id : released) host_.Release(now, worker_id);
}

bool ServerTraining::AdvanceStop(absl::Time now) {
  Advance(now);
  // Records that may be in the model without being in the ledger are trained
  // first, which makes them known. They are the next to be handed out.
  if (saves_.has_suspects()) host_.Grant(now);
  if (saves_.holds_training() || saves_.writer() >= 0) return true;
  const auto& workers = registry_.workers();
  const bool somebody =
      std::any_of(workers.begin(), workers.end(), [](const auto& entry) {
        return entry.second.ready && !entry.second.stop_sent;
      });
  return somebody && !BrokenOff();
}

void ServerTraining::BeginSave(absl::Time now) {
  // As long as the largest model may take. Nothing is heard of it meanwhile.
  constexpr absl::Duration kReadTimeout = absl::Minutes(30);
  // Who stays rather than who wants to leave, and who works rather than who may
  // hang.
  const auto rank = [this](const Worker& worker) {
    return std::pair(!worker.leaving, tasks_.LastReport(worker.id));
  };
  const Worker* saver = nullptr;
  for (const auto& [connection, worker] : registry_.workers()) {
    if (!worker.ready || worker.stop_sent) continue;
    if (saver == nullptr || rank(worker) > rank(*saver)) saver = &worker;
  }
  if (saver == nullptr) {
    // Until somebody comes who can. Nobody is there who would have to hear it.
    saves_.Cancel();
    return;
  }
  saves_.BeginSave(saver->id);
  read_deadline_ = now + kReadTimeout;
  v1::MasterMessage message;
  v1::SaveNow& save = *message.mutable_save_now();
  save.set_step(tasks_.step());
  save.set_lineage(checkpoints_.lineage());
  save.set_versions_may_differ(saves_.versions_may_differ());
  port_.Send({registry_.ConnectionOf(saver->id)}, std::move(message));
}

void ServerTraining::OnModelRead(absl::Time now, ConnectionId connection,
                                 int64_t worker_id,
                                 const v1::CheckpointBegin& begin) {
  // Otherwise others may have trained on while it was read.
  const bool expected = saves_.state() == ServerCheckpoints::State::kSaving &&
                        saves_.saver() == worker_id &&
                        begin.step() == tasks_.step();
  if (!expected) {
    v1::MasterMessage message;
    message.mutable_ledger()->set_step(begin.step());
    return port_.Send({connection}, std::move(message));
  }
  host_.SendLedger(connection, begin);
  saves_.EndRead(begin.step());
  read_deadline_ = absl::InfiniteFuture();
  SendResume(now);
}

void ServerTraining::OnSaved(absl::Time now, int64_t worker_id, int64_t step) {
  const bool held = saves_.holds_training();
  saves_.End(worker_id, step);
  if (!saves_.holds_training()) read_deadline_ = absl::InfiniteFuture();
  if (held && !saves_.holds_training()) SendResume(now);
}

void ServerTraining::CancelSave(absl::Time now) {
  if (!saves_.holds_training()) return;
  saves_.Cancel();
  read_deadline_ = absl::InfiniteFuture();
  SendResume(now);
}

void ServerTraining::OnTimer(absl::Time now) {
  NoteStuck(now);
  if (now < read_deadline_) return;
  read_deadline_ = absl::InfiniteFuture();
  if (saves_.state() != ServerCheckpoints::State::kSaving) return;
  const int64_t saver = saves_.saver();
  CancelSave(now);
  host_.EvictCrashed(
      now, saver,
      "it does not get done with reading the model for a checkpoint");
}

void ServerTraining::SendResume(absl::Time now) {
  // What is trained from here on would not be saved.
  if (BrokenOff()) return;
  tasks_.RestartClocks(now);
  v1::MasterMessage message;
  message.mutable_resume();
  port_.Send(registry_.ReadyConnections(), std::move(message));
}

}  // namespace elasticdl::master
