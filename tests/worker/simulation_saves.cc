// Simulation: saves and their ends.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "simulation_worker.h"

namespace elasticdl::worker::test {
namespace {

// About as long as a whole job of these sizes.
constexpr int64_t kSlowSave = 3000;

}  // namespace

int64_t Simulation::WhenSaved() {
  if (static_cast<int>(random_() % 1000) >= options_.slow_saves) return 0;
  ++report_.slow_saves;
  return report_.actions + static_cast<int64_t>(random_() % kSlowSave);
}

// Between the look at the fence and the rename some time passes, so that an old
// writer may still get through.
bool Simulation::Refused(const checkpoint::Snapshot& snapshot) {
  return snapshot.lineage.IsAbandonedBy(fence_) && Happens(70000);
}

// Mostly a few numbers at a time, so that steps come in between.
absl::Status Simulation::ReadSome(Worker& worker) {
  Worker::Save& save = worker.saves.front();
  const auto tensors = save.Tensors();
  save.read.resize(tensors.size());
  size_t most = 8 + random_() % 500;
  while (save.tensor < tensors.size() && most > 0) {
    const absl::Span<const char> bytes = tensors[save.tensor]->bytes;
    std::string& read = save.read[save.tensor];
    const size_t size = std::min(most, bytes.size() - read.size());
    std::string part(size, 0);
    ELASTICDL_RETURN_IF_ERROR(save.snapshot.snapshot.live->Read(
        bytes.data() + read.size(), size, part.data()));
    read += part;
    most -= size;
    if (read.size() == bytes.size()) ++save.tensor;
  }
  return absl::OkStatus();
}

// With its ledger it is a copy like any other.
absl::Status Simulation::MakeCopy(Worker& worker) {
  Worker::Save& save = worker.saves.front();
  ELASTICDL_RETURN_IF_ERROR(save.snapshot.snapshot.live->Finish());
  ELASTICDL_ASSIGN_OR_RETURN(checkpoint::LateLedger::Answer answer,
                             save.snapshot.snapshot.late->Wait());
  const auto tensors = save.Tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i]->bytes = save.read[i];
  }
  checkpoint::Snapshot& snapshot = save.snapshot.snapshot;
  snapshot.live.reset();
  snapshot.late.reset();
  snapshot.ledger = std::move(answer.ledger);
  snapshot.lineage.run = std::move(answer.run);
  save.snapshot =
      checkpoint::OwnedSnapshot::Copy(checkpoint::Snapshot(snapshot));
  const int64_t step = save.snapshot.snapshot.version;
  save.trained = *worker.ledgers.at(step);
  ++report_.live_saves;
  CheckModel(absl::StrCat("the checkpoint of step ", step),
             Weights(save.snapshot.snapshot.variables.at(0)), save.trained);
  return absl::OkStatus();
}

bool Simulation::CanGoOnWithSave(Worker& worker) {
  Worker::Save& save = worker.saves.front();
  return save.tensor < save.Tensors().size() ||
         save.snapshot.snapshot.late->Poll().has_value();
}

void Simulation::GoOnWithSave(Worker& worker) {
  Worker::Save& save = worker.saves.front();
  const auto answer = save.snapshot.snapshot.late->Poll();
  absl::Status status = absl::OkStatus();
  if (answer.has_value() && !answer->ok()) {
    status = answer->status();
  } else if (save.tensor < save.Tensors().size()) {
    status = ReadSome(worker);
  } else {
    status = MakeCopy(worker);
  }
  if (status.ok()) return;
  const Worker::Save dropped = std::move(save);
  worker.saves.pop_front();
  dropped.done(status);
}

void Simulation::FinishSave(Worker& worker) {
  Worker::Save save = std::move(worker.saves.front());
  worker.saves.pop_front();
  const int64_t step = save.snapshot.snapshot.version;
  if (Refused(save.snapshot.snapshot)) {
    save.done(absl::FailedPreconditionError("fenced"));
    return;
  }
  if (static_cast<int>(random_() % 1000) < options_.failed_saves) {
    ++report_.failed_saves;
    Note(absl::StrCat("worker ", worker.id, " cannot save step ", step));
    save.done(absl::ResourceExhaustedError("disk full"));
    return;
  }
  ++report_.checkpoints;
  Note(absl::StrCat("worker ", worker.id, " has saved step ", step));
  disk_[step] = {std::move(save.snapshot), std::move(save.trained)};
  save.done(absl::StrCat(kDisk, "/version-", step));
}

void Simulation::FinishLateSave() {
  Saved late = std::move(late_saves_.back().saved);
  late_saves_.pop_back();
  if (Refused(late.snapshot.snapshot)) return;
  const int64_t step = late.snapshot.snapshot.version;
  Note(absl::StrCat("version ", step, " of a dead writer appears"));
  disk_.emplace(step, std::move(late));
}

bool Simulation::HurrySaves() {
  for (const auto& worker : workers_) {
    if (worker->ended || worker->hangs || worker->saves.empty()) continue;
    // It waits for its ledger.
    if (worker->saves.front().live()) continue;
    worker->saves.front().ready_at = 0;
    return true;
  }
  return false;
}

}  // namespace elasticdl::worker::test
