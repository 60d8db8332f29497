#include "table_pieces.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "wire.h"

namespace elasticdl::checkpoint::internal {
namespace {

std::vector<std::string> SlotNames(const TableRows& table) {
  std::vector<std::string> names;
  for (const TableRows::Slot& slot : table.slots) names.push_back(slot.name);
  return names;
}

absl::Status CheckTable(const TableRows& table) {
  const auto bad = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("save checkpoint: table '", table.name, "' ", why));
  };
  if (table.dim < 1) return bad(absl::StrCat("has dim ", table.dim));
  const auto dim = static_cast<size_t>(table.dim);
  const auto check = [&](absl::Span<const float> values,
                         absl::string_view what) {
    // Divided, because the product may overflow.
    if (values.size() % dim == 0 && values.size() / dim == table.ids.size()) {
      return absl::OkStatus();
    }
    return bad(absl::StrCat("has ", table.ids.size(), " ids and ",
                            values.size(), " ", what, " of dim ", dim));
  };
  absl::Status checked = check(table.values, "values");
  std::set<absl::string_view> names;
  for (const TableRows::Slot& slot : table.slots) {
    if (!checked.ok()) return checked;
    // Its name in the file is cut at the last slash.
    if (slot.name.empty() || absl::StrContains(slot.name, '/') ||
        !names.insert(slot.name).second) {
      return bad(absl::StrCat("has a slot '", slot.name, "'"));
    }
    checked = check(slot.values, absl::StrCat("values of slot ", slot.name));
  }
  if (!table.ranks.empty() && table.ranks.size() != table.ids.size()) {
    return bad(absl::StrCat("has ", table.ids.size(), " ids and ",
                            table.ranks.size(), " ranks"));
  }
  return checked;
}

}  // namespace

absl::Status CheckTables(absl::Span<const TableRows> tables) {
  std::set<absl::string_view> names;
  for (size_t i = 0; i < tables.size(); ++i) {
    absl::Status checked = CheckTable(tables[i]);
    if (!checked.ok()) return checked;
    const TableRows* before = i > 0 && tables[i - 1].name == tables[i].name
                                  ? &tables[i - 1]
                                  : nullptr;
    if (before == nullptr && !names.insert(tables[i].name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("save checkpoint: parts of table '", tables[i].name,
                       "' do not follow each other"));
    }
    if (before != nullptr &&
        (before->dim != tables[i].dim ||
         before->ranks.empty() != tables[i].ranks.empty() ||
         SlotNames(*before) != SlotNames(tables[i]))) {
      return absl::InvalidArgumentError(
          absl::StrCat("save checkpoint: parts of table '", tables[i].name,
                       "' differ in dim, slots or ranks"));
    }
  }
  return absl::OkStatus();
}

std::vector<std::vector<TablePiece>> CutTables(
    absl::Span<const TableRows> tables, int64_t max_bytes) {
  std::vector<std::vector<TablePiece>> cut;
  for (const TableRows& part : tables) {
    if (cut.empty() || cut.back()[0].table->name != part.name) {
      cut.push_back({TablePiece{&part, {}, 0, 0}});
    }
    std::vector<TablePiece>& pieces = cut.back();
    const int64_t row_bytes =
        part.dim * static_cast<int64_t>(sizeof(float)) + kMaxIdBytes;
    const int64_t most = std::max<int64_t>(1, max_bytes / row_bytes);
    for (size_t at = 0; at < part.ids.size();) {
      if (pieces.back().rows == most) {
        pieces.push_back({&part, {}, 0, 0});
      }
      TablePiece& piece = pieces.back();
      const size_t count = std::min(static_cast<size_t>(most - piece.rows),
                                    part.ids.size() - at);
      piece.segments.push_back({&part, at, count});
      piece.rows += static_cast<int64_t>(count);
      piece.bytes = piece.rows * row_bytes;
      at += count;
    }
  }
  return cut;
}

absl::Status JoinRanks(const std::vector<EmbeddingRows>& ranks,
                       std::vector<EmbeddingRows>& tables,
                       const std::string& path) {
  // By table, in the order of the files; so are the parts of the table.
  std::map<std::string, std::vector<const EmbeddingRows*>> parts;
  for (const EmbeddingRows& part : ranks) parts[part.name].push_back(&part);
  std::map<std::string, size_t> seen;
  for (EmbeddingRows& table : tables) {
    const auto found = parts.find(table.name);
    if (found == parts.end()) continue;
    const size_t part = seen[table.name]++;
    const std::vector<int64_t> shape = {static_cast<int64_t>(table.ids.size()),
                                        1};
    if (part >= found->second.size() || found->second[part]->ids != table.ids ||
        found->second[part]->rows.dtype != v1::DT_INT64 ||
        found->second[part]->rows.shape != shape) {
      return absl::DataLossError(
          absl::StrCat("read ", path, ": the ranks of table ", table.name,
                       " are not those of its rows"));
    }
    table.ranks = found->second[part]->rows.bytes.data();
  }
  return absl::OkStatus();
}

absl::Status JoinSlots(std::vector<EmbeddingRows> slots,
                       std::vector<EmbeddingRows>& tables,
                       const std::string& path) {
  // The parts of a table in the order of the files; so are those of a slot.
  std::map<std::string, std::vector<EmbeddingRows*>> parts;
  for (EmbeddingRows& table : tables) parts[table.name].push_back(&table);
  std::map<std::string, size_t> seen;
  for (EmbeddingRows& slot : slots) {
    const auto found = parts.find(slot.name.substr(0, slot.name.rfind('/')));
    const size_t part = seen[slot.name]++;
    if (found == parts.end() || part >= found->second.size()) {
      return absl::DataLossError(absl::StrCat("read ", path, ": slot ",
                                              Describe(slot.rows),
                                              " belongs to no table"));
    }
    EmbeddingRows& table = *found->second[part];
    if (slot.ids != table.ids || slot.rows.dtype != table.rows.dtype ||
        slot.rows.shape != table.rows.shape) {
      return absl::DataLossError(
          absl::StrCat("read ", path, ": the ids of slot ", Describe(slot.rows),
                       " are not those of its table ", Describe(table.rows)));
    }
    table.slots.push_back(std::move(slot.rows));
    // Tables are large: only one copy of the ids stays.
    slot.ids = {};
  }
  for (const auto& [name, same] : parts) {
    for (EmbeddingRows* table : same) {
      std::sort(table->slots.begin(), table->slots.end(),
                [](const NamedTensor& a, const NamedTensor& b) {
                  return a.name < b.name;
                });
      if (table->slots.size() == same[0]->slots.size()) continue;
      return absl::DataLossError(absl::StrCat(
          "read ", path, ": slots of table ", name, " are missing"));
    }
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::checkpoint::internal
