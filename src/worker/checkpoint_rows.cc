#include "checkpoint_rows.h"

#include <torch/torch.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {

absl::StatusOr<std::unique_ptr<CheckpointRows>> CheckpointRows::Create(
    const checkpoint::Loaded& loaded, const std::vector<ShardedTable>& tables,
    uint64_t seed) {
  std::vector<Table> made;
  for (const ShardedTable& info : tables) {
    Table& table = made.emplace_back();
    table.dim = static_cast<size_t>(info.dim);
    ELASTICDL_ASSIGN_OR_RETURN(table.initial, InitialRows::Of(info, seed));
    const size_t row_bytes = table.dim * sizeof(float);
    bool found = false;
    for (const checkpoint::EmbeddingRows& part : loaded.embedding_tables) {
      if (part.name != info.name) continue;
      found = true;
      if (part.rows.bytes.size() != part.ids.size() * row_bytes) {
        return absl::FailedPreconditionError(
            absl::StrCat(loaded.path, " is of another model: table ",
                         checkpoint::Describe(part.rows), " has rows of ",
                         info.dim, " values here"));
      }
      for (size_t i = 0; i < part.ids.size(); ++i) {
        table.rows[part.ids[i]] = part.rows.bytes.data() + i * row_bytes;
      }
    }
    if (!found) {
      return absl::FailedPreconditionError(absl::StrCat(
          loaded.path, " is of another model: it has no table ", info.name));
    }
  }
  return std::unique_ptr<CheckpointRows>(new CheckpointRows(std::move(made)));
}

torch::Tensor CheckpointRows::Rows(size_t number, const torch::Tensor& ids) {
  const Table& table = tables_[number];
  const torch::Tensor wanted = ids.contiguous();
  torch::Tensor rows =
      torch::empty({wanted.numel(), static_cast<int64_t>(table.dim)});
  auto* to = rows.data_ptr<float>();
  const auto* from = wanted.data_ptr<int64_t>();
  for (int64_t i = 0; i < wanted.numel(); ++i, to += table.dim) {
    const auto found = table.rows.find(from[i]);
    if (found != table.rows.end()) {
      std::memcpy(to, found->second, table.dim * sizeof(float));
    } else {
      table.initial.Fill(from[i], to);
    }
  }
  return rows;
}

}  // namespace elasticdl::worker
