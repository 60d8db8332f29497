#include "server_export.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "initial_rows.h"
#include "row_files.h"

namespace elasticdl::worker {
namespace {

using Tensors = std::map<std::string, torch::Tensor>;

Tensors ByName(const model::Network& network) {
  Tensors tensors;
  for (const auto& [name, tensor] : network.parameters()) {
    tensors[name] = tensor;
  }
  for (const auto& [name, tensor] : network.buffers()) tensors[name] = tensor;
  return tensors;
}

absl::Status FillTable(const ServerModel& served, uint32_t number,
                       const torch::Tensor& parameter) {
  const ShardedTable& table = served.network.tables()[number];
  const auto dim = static_cast<size_t>(table.dim);
  ELASTICDL_ASSIGN_OR_RETURN(const InitialRows initial,
                             InitialRows::Of(table, served.seed));
  if (parameter.scalar_type() != torch::kFloat ||
      parameter.sizes() != torch::IntArrayRef({table.input_dim, table.dim})) {
    return absl::InternalError(
        absl::StrCat("the model without parameter servers has another ",
                     table.name, ": ", c10::str(parameter.sizes())));
  }
  // Mostly the parameter itself: a table may be large.
  const torch::Tensor whole = parameter.contiguous();
  auto* values = whole.data_ptr<float>();
  for (int64_t id = 0; id < table.input_dim; ++id) {
    initial.Fill(id, values + static_cast<size_t>(id) * dim);
  }
  ELASTICDL_RETURN_IF_ERROR(
      served.client
          .ReadTable(
              number,
              [&](absl::Span<const int64_t> ids, const float* rows,
                  absl::Span<const float* const>, absl::Span<const int64_t>) {
                for (size_t i = 0; i < ids.size(); ++i) {
                  if (ids[i] < 0 || ids[i] >= table.input_dim) continue;
                  std::memcpy(values + static_cast<size_t>(ids[i]) * dim,
                              rows + i * dim, dim * sizeof(float));
                }
                return absl::OkStatus();
              })
          .status());
  if (!whole.is_same(parameter)) parameter.copy_(whole);
  return absl::OkStatus();
}

// Copies the model into `whole`. Returns the numbers of the tables that are no
// parameters there.
absl::StatusOr<std::vector<size_t>> Fill(const ServerModel& served,
                                         const model::Network& whole) {
  const torch::NoGradGuard no_grad;
  Tensors to = ByName(whole);
  for (const auto& [name, tensor] : ByName(served.network)) {
    const auto found = to.find(name);
    if (found == to.end()) {
      return absl::InternalError(
          absl::StrCat("the model without parameter servers has no ", name));
    }
    found->second.copy_(tensor);
  }
  std::vector<size_t> rest;
  const std::vector<ShardedTable>& tables = served.network.tables();
  for (size_t i = 0; i < tables.size(); ++i) {
    const auto found = to.find(tables[i].name);
    if (found == to.end()) {
      rest.push_back(i);
      continue;
    }
    ELASTICDL_RETURN_IF_ERROR(
        FillTable(served, static_cast<uint32_t>(i), found->second));
  }
  return rest;
}

// Two tables must not have the same files, whatever their names.
std::string FreeName(const std::string& table, std::set<std::string>& taken) {
  std::string name = absl::StrReplaceAll(table, {{"/", "_"}});
  while (!taken.insert(name).second) name += "_";
  return name;
}

absl::StatusOr<v1::ExportedRows> ExportRows(
    const std::string& dir, const ServerModel& served,
    const std::vector<size_t>& numbers) {
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(dir));
  RowIndexFile index;
  std::set<std::string> taken;
  for (const size_t i : numbers) {
    const ShardedTable& table = served.network.tables()[i];
    RowFiles files({dir, FreeName(table.name, taken), table.dim});
    ELASTICDL_RETURN_IF_ERROR(
        served.client
            .ReadTable(
                static_cast<uint32_t>(i),
                [&](absl::Span<const int64_t> ids, const float* rows,
                    absl::Span<const float* const>,
                    absl::Span<const int64_t>) { return files.Add(ids, rows); })
            .status());
    ELASTICDL_RETURN_IF_ERROR(files.Finish());
    LogInfo("exported ", files.rows(), " rows of ", table.name);
    index.Add(table.name, table.dim, files);
  }
  ELASTICDL_RETURN_IF_ERROR(index.Write(dir));
  return index.Summary(dir);
}

}  // namespace

absl::StatusOr<v1::ExportedRows> ExportFromServers(const std::string& dir,
                                                   const ServerModel& served) {
  const std::vector<ShardedTable>& tables = served.network.tables();
  if (tables.empty()) {
    ELASTICDL_RETURN_IF_ERROR(model::ExportTo(dir, served.network));
    return v1::ExportedRows();
  }
  const bool bounded = std::all_of(
      tables.begin(), tables.end(),
      [](const ShardedTable& table) { return table.input_dim > 0; });
  // Layers of torch are ordinary ones in both.
  ELASTICDL_ASSIGN_OR_RETURN(
      const auto whole, served.model.CreateNetwork(
                            {served.seed, /*sharded_embeddings=*/!bounded}));
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<size_t> rest,
                             Fill(served, *whole));
  ELASTICDL_RETURN_IF_ERROR(model::ExportTo(dir, *whole));
  const std::string rows = JoinPath(dir, "tables");
  // Those of an earlier export.
  if (!rest.empty() || FileExists(JoinPath(rows, "index.json"))) {
    ELASTICDL_RETURN_IF_ERROR(RemoveTree(rows));
  }
  if (rest.empty()) return v1::ExportedRows();
  return ExportRows(rows, served, rest);
}

}  // namespace elasticdl::worker
