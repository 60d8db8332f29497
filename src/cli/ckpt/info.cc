// `elasticdl ckpt info`.
#include <iostream>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ckpt/ckpt.h"
#include "ckpt/compare.h"
#include "data/data_commands.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/flag_set.h"
#include "nlohmann/json.hpp"

namespace elasticdl::cli {
namespace {

using checkpoint::EmbeddingRows;
using checkpoint::Loaded;
using checkpoint::NamedTensor;
using Json = nlohmann::ordered_json;

// All parts of a table.
struct TableInfo {
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t parts = 0;
  int64_t bytes = 0;
  std::vector<std::string> slots;
};

std::map<std::string, TableInfo> TableInfos(const Loaded& loaded) {
  std::map<std::string, TableInfo> tables;
  for (const EmbeddingRows& part : loaded.embedding_tables) {
    TableInfo& table = tables[part.name];
    table.rows += static_cast<int64_t>(part.ids.size());
    if (part.rows.shape.size() == 2) table.dim = part.rows.shape[1];
    table.bytes += static_cast<int64_t>(part.rows.bytes.size());
    table.slots.clear();
    for (const NamedTensor& slot : part.slots) {
      table.slots.push_back(slot.name.substr(slot.name.rfind('/') + 1));
      table.bytes += static_cast<int64_t>(slot.bytes.size());
    }
    ++table.parts;
  }
  return tables;
}

Json TensorsToJson(const std::vector<NamedTensor>& tensors) {
  Json out = Json::array();
  for (const NamedTensor& tensor : tensors) {
    out.push_back({{"name", tensor.name},
                   {"dtype", checkpoint::TypeName(tensor.dtype)},
                   {"shape", tensor.shape},
                   {"bytes", tensor.bytes.size()}});
  }
  return out;
}

Json InfoToJson(const Loaded& loaded) {
  Json out = {{"path", loaded.path},
              {"version", loaded.version},
              {"optimizer", loaded.optimizer},
              {"optimizer_step", loaded.optimizer_step},
              {"run", loaded.lineage.run},
              {"lineage", loaded.lineage.generation},
              {"files", loaded.num_files},
              {"bytes", loaded.file_bytes},
              {"variables", TensorsToJson(loaded.variables)},
              {"slots", TensorsToJson(loaded.slots)},
              {"tables", Json::array()}};
  for (const auto& [name, table] : TableInfos(loaded)) {
    out["tables"].push_back({{"name", name},
                             {"rows", table.rows},
                             {"dim", table.dim},
                             {"slots", table.slots},
                             {"parts", table.parts},
                             {"bytes", table.bytes}});
  }
  if (loaded.ledger.has_value()) {
    const v1::Ledger& ledger = *loaded.ledger;
    out["ledger"] = {
        {"step", ledger.step()},
        {"epoch", ledger.epoch()},
        {"committed_records", ledger.committed_records()},
        {"outstanding_records", CountRecords(ledger.outstanding())},
        {"quarantined_records", CountRecords(ledger.quarantined())}};
  }
  return out;
}

std::string Size(size_t bytes) {
  return FormatBytes(static_cast<double>(bytes));
}

void PrintTensors(const char* title, const std::vector<NamedTensor>& tensors) {
  size_t bytes = 0;
  for (const NamedTensor& tensor : tensors) bytes += tensor.bytes.size();
  std::cout << title << ": " << tensors.size() << ", " << Size(bytes) << "\n";
  for (const NamedTensor& tensor : tensors) {
    std::cout << "  " << Describe(tensor) << "  " << Size(tensor.bytes.size())
              << "\n";
  }
}

void PrintInfo(const Loaded& loaded) {
  std::cout << loaded.path << "\n"
            << "step:      " << loaded.version << "\n";
  if (!loaded.optimizer.empty()) {
    std::cout << "optimizer: " << loaded.optimizer << ", applied "
              << loaded.optimizer_step << " times\n";
  }
  if (!loaded.lineage.run.empty()) {
    std::cout << "run:       " << loaded.lineage.run << ", lineage "
              << loaded.lineage.generation << "\n";
  }
  std::cout << "files:     " << loaded.num_files << ", "
            << Size(static_cast<size_t>(loaded.file_bytes)) << "\n";
  if (loaded.ledger.has_value()) {
    const v1::Ledger& ledger = *loaded.ledger;
    // From 1, as in the display of a job.
    std::cout << "ledger:    epoch " << ledger.epoch() + 1 << ", "
              << ledger.committed_records() << " records committed, "
              << CountRecords(ledger.outstanding()) << " outstanding, "
              << CountRecords(ledger.quarantined()) << " quarantined\n";
  } else {
    std::cout << "ledger:    none\n";
  }
  PrintTensors("variables", loaded.variables);
  PrintTensors("slots", loaded.slots);
  const std::map<std::string, TableInfo> tables = TableInfos(loaded);
  std::cout << "tables: " << tables.size() << "\n";
  for (const auto& [name, table] : tables) {
    std::cout << "  " << name << "  " << table.rows << " rows, dim "
              << table.dim << ", slots "
              << (table.slots.empty() ? "none"
                                      : absl::StrJoin(table.slots, " "))
              << "  " << Size(static_cast<size_t>(table.bytes)) << "\n";
  }
}

}  // namespace

int RunCkptInfo(const std::vector<std::string>& args) {
  std::vector<std::string> paths;
  bool json = false;
  flags::FlagSet flags("elasticdl ckpt info",
                       "Show what a checkpoint holds. Reads all of it and "
                       "verifies the checksums.");
  flags.AddPositional("PATH", &paths, 1,
                      "A version-N folder, or a folder of them: the newest", 1);
  flags.Add("json", &json, flags::Info("Options", "Print JSON."));
  if (const int code = flags.ParseOrExitCode(args); code >= 0) return code;
  const absl::StatusOr<Loaded> loaded = checkpoint::LoadResolved(paths[0]);
  if (!loaded.ok()) return CkptFailed(loaded.status());
  if (json) {
    // Names are bytes from files: never throw.
    std::cout << JsonText(InfoToJson(*loaded), 2) << "\n";
  } else {
    PrintInfo(*loaded);
  }
  return 0;
}

}  // namespace elasticdl::cli
