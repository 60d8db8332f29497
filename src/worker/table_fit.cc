#include "table_fit.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "initial_rows.h"

namespace elasticdl::worker {
namespace {

using checkpoint::EmbeddingRows;
using checkpoint::Loaded;
using checkpoint::NamedTensor;

absl::Status NeedsServers(const Loaded& loaded, const ShardedTable& table) {
  return absl::FailedPreconditionError(absl::StrCat(
      "restore from ", loaded.path, ": the ids of ", table.name,
      " may be anything (its Embedding has no input_dim), and without "
      "parameter servers they are hashed: it cannot be converted"));
}

// Takes the tensor of that name out; nothing when there is none.
std::optional<NamedTensor> Take(std::vector<NamedTensor>& tensors,
                                const std::string& name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(),
                   [&](const NamedTensor& t) { return t.name == name; });
  if (found == tensors.end()) return std::nullopt;
  NamedTensor taken = std::move(*found);
  tensors.erase(found);
  return taken;
}

// They are sorted.
void Insert(NamedTensor tensor, std::vector<NamedTensor>& tensors) {
  const auto place =
      std::find_if(tensors.begin(), tensors.end(),
                   [&](const NamedTensor& t) { return t.name > tensor.name; });
  tensors.insert(place, std::move(tensor));
}

// One array of a table as a parameter.
struct Array {
  std::string name;
  std::vector<float> values;
};

absl::Status CopyRows(const Loaded& loaded, const ShardedTable& table,
                      const EmbeddingRows& part, const NamedTensor& from,
                      Array& to) {
  const auto dim = static_cast<size_t>(table.dim);
  if (from.bytes.size() != part.ids.size() * dim * sizeof(float)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "restore from ", loaded.path, ": table ", checkpoint::Describe(from),
        " has rows of ", table.dim, " values here"));
  }
  for (size_t i = 0; i < part.ids.size(); ++i) {
    const int64_t id = part.ids[i];
    if (id < 0 || id >= table.input_dim) {
      return absl::FailedPreconditionError(absl::StrCat(
          "restore from ", loaded.path, ": table ", table.name, " has a row ",
          id, ", which is not in [0, ", table.input_dim, ")"));
    }
    std::memcpy(to.values.data() + static_cast<size_t>(id) * dim,
                from.bytes.data() + i * dim * sizeof(float),
                dim * sizeof(float));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SplitTables(const std::vector<ShardedTable>& tables,
                         Loaded& loaded) {
  for (const ShardedTable& table : tables) {
    std::optional<NamedTensor> values = Take(loaded.variables, table.name);
    if (!values.has_value()) continue;
    if (table.input_dim == 0) return NeedsServers(loaded, table);
    if (values->shape != std::vector<int64_t>{table.input_dim, table.dim}) {
      return absl::FailedPreconditionError(absl::StrCat(
          "restore from ", loaded.path, ": ", checkpoint::Describe(*values),
          " is [", table.input_dim, ",", table.dim, "] in the model"));
    }
    EmbeddingRows& rows = loaded.embedding_tables.emplace_back();
    rows.name = table.name;
    rows.ids.resize(static_cast<size_t>(table.input_dim));
    std::iota(rows.ids.begin(), rows.ids.end(), int64_t{0});
    rows.rows = *std::move(values);
    const std::string prefix = checkpoint::SlotName(table.name, "");
    for (size_t i = 0; i < loaded.slots.size();) {
      if (loaded.slots[i].name.compare(0, prefix.size(), prefix) != 0) {
        ++i;
        continue;
      }
      rows.slots.push_back(std::move(loaded.slots[i]));
      loaded.slots.erase(loaded.slots.begin() + static_cast<int64_t>(i));
    }
  }
  return absl::OkStatus();
}

absl::Status JoinTables(const std::vector<ShardedTable>& tables, uint64_t seed,
                        const std::vector<std::pair<std::string, float>>& slots,
                        Loaded& loaded) {
  for (const ShardedTable& table : tables) {
    if (loaded.FindVariable(table.name) != nullptr) continue;
    if (table.input_dim == 0) return NeedsServers(loaded, table);
    const auto rows = static_cast<size_t>(table.input_dim);
    const auto dim = static_cast<size_t>(table.dim);
    std::vector<Array> arrays(1 + slots.size());
    arrays[0] = {table.name, std::vector<float>(rows * dim)};
    ELASTICDL_ASSIGN_OR_RETURN(const InitialRows initial,
                               InitialRows::Of(table, seed));
    for (size_t id = 0; id < rows; ++id) {
      initial.Fill(static_cast<int64_t>(id),
                   arrays[0].values.data() + id * dim);
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      arrays[i + 1] = {checkpoint::SlotName(table.name, slots[i].first),
                       std::vector<float>(rows * dim, slots[i].second)};
    }
    for (const EmbeddingRows& part : loaded.embedding_tables) {
      if (part.name != table.name) continue;
      ELASTICDL_RETURN_IF_ERROR(
          CopyRows(loaded, table, part, part.rows, arrays[0]));
      for (size_t i = 1; i < arrays.size(); ++i) {
        for (const NamedTensor& slot : part.slots) {
          if (slot.name != arrays[i].name) continue;
          ELASTICDL_RETURN_IF_ERROR(
              CopyRows(loaded, table, part, slot, arrays[i]));
        }
      }
    }
    for (size_t i = 0; i < arrays.size(); ++i) {
      const size_t size = arrays[i].values.size() * sizeof(float);
      char* const bytes = loaded.Allocate(size);
      std::memcpy(bytes, arrays[i].values.data(), size);
      arrays[i].values = {};
      NamedTensor tensor;
      tensor.name = arrays[i].name;
      tensor.shape = {table.input_dim, table.dim};
      tensor.bytes = absl::MakeConstSpan(bytes, size);
      Insert(std::move(tensor), i == 0 ? loaded.variables : loaded.slots);
    }
    auto& parts = loaded.embedding_tables;
    parts.erase(std::remove_if(parts.begin(), parts.end(),
                               [&](const EmbeddingRows& part) {
                                 return part.name == table.name;
                               }),
                parts.end());
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::worker
