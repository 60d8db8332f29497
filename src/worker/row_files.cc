#include "row_files.h"

#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "elasticdl/model/loader.h"

namespace elasticdl::worker {

RowFiles::RowFiles(Options options) : options_(std::move(options)) {}

absl::Status RowFiles::Add(absl::Span<const int64_t> ids, const float* rows) {
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  values_.insert(values_.end(), rows,
                 rows + ids.size() * static_cast<size_t>(options_.dim));
  return values_.size() < options_.max_values ? absl::OkStatus() : Write();
}

absl::Status RowFiles::Finish() {
  return files_.empty() || !ids_.empty() ? Write() : absl::OkStatus();
}

absl::Status RowFiles::Write() {
  const auto count = static_cast<int64_t>(ids_.size());
  const torch::Tensor ids =
      torch::from_blob(ids_.data(), {count}, torch::kLong);
  const torch::Tensor rows =
      torch::from_blob(values_.data(), {count, options_.dim}, torch::kFloat);
  const std::string name =
      absl::StrCat(options_.name, "-", files_.size(), ".pt");
  ELASTICDL_RETURN_IF_ERROR(model::ExportTensors(
      JoinPath(options_.dir, name), {{"ids", ids}, {"rows", rows}}));
  files_.push_back({name, count});
  ids_.clear();
  values_.clear();
  return absl::OkStatus();
}

int64_t RowFiles::rows() const {
  int64_t rows = 0;
  for (const File& file : files_) rows += file.rows;
  return rows;
}

void RowIndexFile::Add(const std::string& table, int64_t dim,
                       const RowFiles& files) {
  tables_.push_back({table, dim, files.files(), files.rows()});
}

absl::Status RowIndexFile::Write(const std::string& dir) const {
  nlohmann::ordered_json tables = nlohmann::ordered_json::array();
  for (const Table& table : tables_) {
    nlohmann::ordered_json files = nlohmann::ordered_json::array();
    for (const RowFiles::File& file : table.files) {
      files.push_back({{"file", file.name}, {"rows", file.rows}});
    }
    tables.push_back({{"table", table.name},
                      {"dim", table.dim},
                      {"dtype", "float32"},
                      {"rows", table.rows},
                      {"files", std::move(files)}});
  }
  nlohmann::ordered_json index;
  index["tables"] = std::move(tables);
  return WriteFileAtomic(JoinPath(dir, "index.json"),
                         JsonText(index, /*indent=*/1) + "\n");
}

v1::ExportedRows RowIndexFile::Summary(const std::string& dir) const {
  v1::ExportedRows summary;
  summary.set_folder(dir);
  summary.set_tables(static_cast<int64_t>(tables_.size()));
  for (const Table& table : tables_) {
    summary.set_files(summary.files() +
                      static_cast<int64_t>(table.files.size()));
    summary.set_rows(summary.rows() + table.rows);
  }
  return summary;
}

}  // namespace elasticdl::worker
