// A replica takes over the model of a checkpoint.
#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "replica.h"
#include "table_fit.h"

namespace elasticdl::worker {
namespace {

// Of the same type; numbers such as the learning rate may differ.
bool IsOfOptimizer(const checkpoint::Loaded& loaded, const std::string& spec) {
  const auto type = [](const std::string& text) {
    return text.substr(0, text.find('('));
  };
  return type(loaded.optimizer) == type(spec);
}

}  // namespace

absl::Status Replica::FitTables(checkpoint::Loaded& loaded) const {
  const auto is_table = [this](const std::string& name) {
    const std::vector<ShardedTable>& tables = network_->tables();
    return std::any_of(
        tables.begin(), tables.end(),
        [&](const ShardedTable& table) { return table.name == name; });
  };
  ELASTICDL_RETURN_IF_ERROR(SplitTables(network_->tables(), loaded));
  std::set<std::string> parameters;
  for (const checkpoint::EmbeddingRows& rows : loaded.embedding_tables) {
    if (!is_table(rows.name)) parameters.insert(rows.name);
  }
  if (parameters.empty()) return absl::OkStatus();
  // Only a network in which they are tables knows how their rows begin.
  ELASTICDL_ASSIGN_OR_RETURN(
      const auto sharded,
      model_.CreateNetwork({seed_, /*sharded_embeddings=*/true,
                            /*layer_limit=*/0, std::move(parameters)}));
  std::vector<ShardedTable> tables;
  for (const ShardedTable& table : sharded->tables()) {
    if (!is_table(table.name)) tables.push_back(table);
  }
  std::vector<std::pair<std::string, float>> slots;
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots.emplace_back(optimizer_->slot_names()[i],
                       optimizer_->initial_slot_value(i));
  }
  return JoinTables(tables, seed_, slots, loaded);
}

absl::Status Replica::PlaceCheckpoint(checkpoint::Loaded& loaded) {
  GiveUpLive("a checkpoint is restored");
  ELASTICDL_RETURN_IF_ERROR(FetchState());
  placed_ = true;
  // Two variables may share their memory, which only one reader may write.
  std::set<const char*> taken;
  const auto place = [&](const checkpoint::NamedTensor* tensor,
                         absl::Span<const char> to) {
    if (tensor == nullptr || to.empty() || tensor->bytes.size() != to.size() ||
        !taken.insert(to.data()).second) {
      return;
    }
    // One of `loaded`, which is ours to change.
    const_cast<checkpoint::NamedTensor*>(tensor)->bytes = to;
  };
  for (const checkpoint::NamedTensor& variable : Variables()) {
    place(loaded.FindVariable(variable.name), variable.bytes);
  }
  if (optimizer_ == nullptr || !IsOfOptimizer(loaded, optimizer_spec_)) {
    return absl::OkStatus();
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    for (const FlatParameters::Slice& slice : flat_->slices()) {
      place(loaded.FindSlot(slice.name, optimizer_->slot_names()[i]),
            SlotBytes(i, slice));
    }
  }
  return absl::OkStatus();
}

absl::Status Replica::Restore(checkpoint::Loaded& loaded) {
  ELASTICDL_RETURN_IF_ERROR(FitTables(loaded));
  // Some of it may not be in the checkpoint.
  if (!std::exchange(placed_, false)) {
    ELASTICDL_RETURN_IF_ERROR(FetchState());
  }
  const std::vector<checkpoint::NamedTensor> variables = Variables();
  std::vector<std::string> other_names;
  for (const auto& [name, tensor] : network_->OtherNames()) {
    other_names.push_back(name);
  }
  ELASTICDL_RETURN_IF_ERROR(
      checkpoint::CheckCompatible(loaded, variables, other_names));
  GiveUpLive("a checkpoint is restored");
  for (const checkpoint::NamedTensor& variable : variables) {
    const auto* source = loaded.FindVariable(variable.name);
    if (source->bytes.data() == variable.bytes.data()) continue;
    // The views are of our own tensors: writing to them is writing the model.
    memcpy(const_cast<char*>(variable.bytes.data()), source->bytes.data(),
           variable.bytes.size());
  }
  step_ = loaded.version;
  if (optimizer_ != nullptr) RestoreSlots(loaded);
  RestoreLossScale(loaded);
  return StoreState();
}

void Replica::RestoreLossScale(const checkpoint::Loaded& loaded) {
  loss_scale_ = LossScale();
  const auto* saved = loaded.FindSlot(kLossScale, "loss_scale");
  const absl::Span<char> bytes = loss_scale_.bytes();
  if (saved == nullptr || saved->bytes.size() != bytes.size()) return;
  memcpy(bytes.data(), saved->bytes.data(), bytes.size());
  loss_scale_.Check();
}

absl::Span<char> Replica::SlotBytes(size_t slot,
                                    const FlatParameters::Slice& slice) const {
  return {mirror_.Data(slots_[slot]) + slice.offset * sizeof(float),
          slice.size * sizeof(float)};
}

void Replica::RestoreSlots(const checkpoint::Loaded& loaded) {
  const bool same = IsOfOptimizer(loaded, optimizer_spec_);
  if (!same) {
    LogWarning("checkpoint ", loaded.path, " was made with ",
               loaded.optimizer.empty() ? "no optimizer" : loaded.optimizer,
               "; the state of ", optimizer_spec_,
               " is initialized from scratch");
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    for (const FlatParameters::Slice& slice : flat_->slices()) {
      const auto* source =
          same ? loaded.FindSlot(slice.name, optimizer_->slot_names()[i])
               : nullptr;
      const absl::Span<char> to = SlotBytes(i, slice);
      if (source != nullptr && source->bytes.size() == to.size()) {
        if (source->bytes.data() == to.data()) continue;
        memcpy(to.data(), source->bytes.data(), to.size());
        continue;
      }
      if (same) {
        LogWarning("checkpoint ", loaded.path, " has no ",
                   optimizer_->slot_names()[i], " of ", slice.name,
                   "; it is initialized from scratch");
      }
      // It may hold another model's state, or half of a damaged checkpoint.
      std::fill_n(reinterpret_cast<float*>(to.data()), slice.size,
                  optimizer_->initial_slot_value(i));
    }
  }
}

}  // namespace elasticdl::worker
