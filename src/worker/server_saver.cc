#include "server_saver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint_coordinator.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {

// ---- saving ----

void ServerSaver::OnSaveNow(const v1::SaveNow& save) {
  if (save.versions_may_differ()) deps_.client.AllowDifferentVersions();
  absl::StatusOr<Model> model = Read();
  if (!model.ok()) {
    // Cancelled: this worker is to stop, and another will be asked.
    if (absl::IsCancelled(model.status())) return;
    deps_.send(MakeCheckpointDone(save.step(), save.lineage(), model.status(),
                                  absl::ZeroDuration()));
    return;
  }
  model->owned.snapshot.version = save.step();
  model->owned.snapshot.lineage.generation = save.lineage();
  waiting_ = *std::move(model);
  v1::WorkerMessage message;
  message.mutable_checkpoint_begin()->set_step(save.step());
  message.mutable_checkpoint_begin()->set_lineage(save.lineage());
  deps_.send(std::move(message));
}

absl::StatusOr<ServerSaver::Model> ServerSaver::Read() {
  if (saver_ == nullptr) {
    return absl::FailedPreconditionError("there is no --checkpoint_dir");
  }
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.read_model"));
  ELASTICDL_ASSIGN_OR_RETURN(Model model, ReadDense());
  const int64_t version = model.owned.snapshot.optimizer_step;
  const size_t tables = deps_.replica.network().tables().size();
  if (tables == 0) return model;
  ELASTICDL_ASSIGN_OR_RETURN(RowSpool spool, RowSpool::Create(deps_.folder));
  for (size_t table = 0; table < tables; ++table) {
    ELASTICDL_ASSIGN_OR_RETURN(const int64_t same,
                               ReadTable(static_cast<uint32_t>(table), spool));
    if (same != version) {
      return absl::AbortedError(absl::StrCat("version ", version, " became ",
                                             same, " while it was read"));
    }
  }
  ELASTICDL_ASSIGN_OR_RETURN(model.rows,
                             std::move(spool).AddTo(model.owned.snapshot));
  return model;
}

absl::StatusOr<ServerSaver::Model> ServerSaver::ReadDense() {
  std::vector<std::vector<float>> arrays;
  ELASTICDL_ASSIGN_OR_RETURN(const int64_t version,
                             deps_.client.ReadDense(arrays));
  const FlatParameters& flat = deps_.replica.parameters();
  const std::vector<std::string>& slots = deps_.replica.slot_names();
  if (arrays.size() != slots.size() + 1 ||
      arrays[0].size() != deps_.dense.size()) {
    return absl::InternalError("the servers' model has another size");
  }
  // This worker's own copy gets the newest values: parameters that are not
  // trained, and buffers that the servers do not have, are saved from there.
  deps_.dense.SetValues(arrays[0]);
  ELASTICDL_ASSIGN_OR_RETURN(const checkpoint::Snapshot view,
                             deps_.replica.ViewWithoutSlots());
  Model model;
  model.owned = checkpoint::OwnedSnapshot::Copy(view);
  model.owned.snapshot.optimizer_step = version;
  for (size_t i = 0; i < slots.size(); ++i) {
    const absl::Span<const char> bytes =
        model.owned.Keep(std::move(arrays[i + 1]));
    for (const FlatParameters::Slice& slice : flat.slices()) {
      checkpoint::NamedTensor slot;
      slot.name = checkpoint::SlotName(slice.name, slots[i]);
      slot.shape = slice.shape;
      slot.bytes = bytes.subspan(slice.offset * sizeof(float),
                                 slice.size * sizeof(float));
      model.owned.snapshot.slots.push_back(std::move(slot));
    }
  }
  return model;
}

absl::StatusOr<int64_t> ServerSaver::ReadTable(uint32_t table, RowSpool& into) {
  const ShardedTable& info = deps_.replica.network().tables()[table];
  into.BeginTable(info.name, info.dim, info.initializer,
                  deps_.replica.slot_names());
  return deps_.client.ReadTable(
      table, [&](absl::Span<const int64_t> ids, const float* values,
                 absl::Span<const float* const> slots,
                 absl::Span<const int64_t> ranks) {
        return into.Add(ids, values, slots, ranks);
      });
}

void ServerSaver::OnLedger(const v1::LedgerReply& reply) {
  if (!waiting_.has_value() ||
      waiting_->owned.snapshot.version != reply.step()) {
    return;
  }
  Model model = *std::move(waiting_);
  waiting_.reset();
  if (!reply.has_ledger()) {
    LogInfo("the copy of step ", reply.step(), " is dropped");
    return;
  }
  model.owned.snapshot.ledger = reply.ledger();
  model.owned.snapshot.lineage.run = reply.run();
  const int64_t step = reply.step();
  const int64_t lineage = model.owned.snapshot.lineage.generation;
  saver_->Submit(
      std::move(model.owned),
      // It keeps the rows until they are saved.
      [rows = std::move(model.rows), send = deps_.send, step, lineage,
       &clock = deps_.clock,
       start = deps_.clock.Now()](const absl::StatusOr<std::string>& path) {
        if (absl::IsCancelled(path.status())) return;
        send(MakeCheckpointDone(step, lineage, path, clock.Now() - start));
      });
}

void ServerSaver::Flush() {
  if (saver_ == nullptr) return;
  const absl::Status status = saver_->Flush(kSaveTimeout);
  if (!status.ok()) LogError("saving the last checkpoint: ", status.message());
}

// ---- restoring ----

absl::Status ServerSaver::Restore(checkpoint::Loaded& loaded) {
  // Checks that it is of this model, and puts parameters, slots and buffers
  // where they are sent from.
  ELASTICDL_RETURN_IF_ERROR(deps_.replica.Restore(loaded));
  const size_t tables = deps_.replica.network().tables().size();
  for (size_t table = 0; table < tables; ++table) {
    ELASTICDL_RETURN_IF_ERROR(
        RestoreTable(loaded, static_cast<uint32_t>(table)));
  }
  const std::vector<float> values = deps_.dense.Values();
  const std::vector<std::vector<float>> arrays = deps_.dense.Slots();
  std::vector<const float*> slots;
  slots.reserve(arrays.size());
  for (const std::vector<float>& array : arrays) slots.push_back(array.data());
  return deps_.client.SetInitialValues(values.data(), slots, loaded.version);
}

absl::Status ServerSaver::RestoreTable(const checkpoint::Loaded& loaded,
                                       uint32_t table) {
  const ShardedTable& info = deps_.replica.network().tables()[table];
  for (const checkpoint::EmbeddingRows& part : loaded.embedding_tables) {
    if (part.name != info.name) continue;
    const std::vector<int64_t> shape = {static_cast<int64_t>(part.ids.size()),
                                        info.dim};
    if (part.rows.dtype != v1::DT_FLOAT || part.rows.shape != shape) {
      return absl::FailedPreconditionError(
          absl::StrCat(loaded.path, " is of another model: table ",
                       checkpoint::Describe(part.rows), " has rows of ",
                       info.dim, " values here"));
    }
    std::vector<const void*> slots;
    for (const std::string& name : deps_.replica.slot_names()) {
      for (const checkpoint::NamedTensor& slot : part.slots) {
        if (slot.name == checkpoint::SlotName(info.name, name) &&
            slot.dtype == v1::DT_FLOAT &&
            slot.bytes.size() == part.rows.bytes.size()) {
          slots.push_back(slot.bytes.data());
        }
      }
    }
    // Of another optimizer: its own initial values.
    if (slots.size() != deps_.replica.slot_names().size()) slots.clear();
    ELASTICDL_RETURN_IF_ERROR(
        deps_.client.RestoreRows(loaded.version, table, part.ids,
                                 part.rows.bytes.data(), slots, part.ranks));
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::worker
