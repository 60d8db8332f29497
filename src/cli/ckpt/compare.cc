#include "ckpt/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace elasticdl::cli {
namespace {

using checkpoint::EmbeddingRows;
using checkpoint::Loaded;
using checkpoint::NamedTensor;

template <typename T>
double Get(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return static_cast<double>(value);
}

double GetHalf(const char* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  if (exponent == 31) {
    return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

double GetBfloat16(const char* at) {
  // The upper half of a float.
  char bytes[4] = {0, 0, at[0], at[1]};
  return Get<float>(bytes);
}

using Getter = double (*)(const char*);

Getter GetterOf(v1::DataType dtype) {
  switch (dtype) {
    case v1::DT_FLOAT:
      return Get<float>;
    case v1::DT_DOUBLE:
      return Get<double>;
    case v1::DT_INT32:
      return Get<int32_t>;
    case v1::DT_INT16:
      return Get<int16_t>;
    case v1::DT_INT8:
      return Get<int8_t>;
    case v1::DT_INT64:
      return Get<int64_t>;
    case v1::DT_HALF:
      return GetHalf;
    case v1::DT_BFLOAT16:
      return GetBfloat16;
    default:
      return Get<uint8_t>;
  }
}

double Distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double distance = std::abs(a - b);
  return std::isnan(distance) ? HUGE_VAL : distance;
}

double MaxDistance(v1::DataType dtype, const char* a, const char* b,
                   size_t bytes) {
  if (bytes == 0 || std::memcmp(a, b, bytes) == 0) return 0;
  const Getter get = GetterOf(dtype);
  const auto step =
      std::max<size_t>(1, static_cast<size_t>(checkpoint::ElementBytes(dtype)));
  double most = 0;
  for (size_t at = 0; at + step <= bytes; at += step) {
    double distance = Distance(get(a + at), get(b + at));
    // A double cannot hold all digits of large integers.
    if (distance == 0 && dtype == v1::DT_INT64 &&
        std::memcmp(a + at, b + at, step) != 0) {
      distance = 1;
    }
    most = std::max(most, distance);
  }
  return most;
}

std::string TypeAndShape(const NamedTensor& tensor) {
  return Describe(tensor).substr(tensor.name.size() + 1);
}

// Both are sorted by name.
void CompareTensors(const char* kind, const std::vector<NamedTensor>& a,
                    const std::vector<NamedTensor>& b,
                    std::vector<Difference>& out) {
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() || j < b.size()) {
    Difference difference;
    difference.kind = kind;
    if (j == b.size() || (i < a.size() && a[i].name < b[j].name)) {
      difference.name = a[i++].name;
      difference.only_in = 1;
      out.push_back(difference);
      continue;
    }
    if (i == a.size() || b[j].name < a[i].name) {
      difference.name = b[j++].name;
      difference.only_in = 2;
      out.push_back(difference);
      continue;
    }
    difference.name = a[i].name;
    if (a[i].dtype != b[j].dtype || a[i].shape != b[j].shape) {
      difference.first = TypeAndShape(a[i]);
      difference.second = TypeAndShape(b[j]);
      out.push_back(difference);
    } else {
      difference.max_difference = MaxDifference(a[i], b[j]);
      if (difference.max_difference > 0) out.push_back(difference);
    }
    ++i;
    ++j;
  }
}

// A table by id: where its rows and slots are.
struct Table {
  struct Row {
    int64_t id = 0;
    const EmbeddingRows* part = nullptr;
    size_t index = 0;
  };
  std::vector<Row> rows;
  // "float32 dim 8, slots m v": must be equal to compare rows.
  std::string kind;
};

std::map<std::string, Table> TablesOf(const Loaded& loaded) {
  std::map<std::string, Table> tables;
  for (const EmbeddingRows& part : loaded.embedding_tables) {
    Table& table = tables[part.name];
    const int64_t dim = part.rows.shape.size() == 2 ? part.rows.shape[1] : 0;
    table.kind = absl::StrCat(checkpoint::TypeName(part.rows.dtype), " dim ",
                              dim, ", slots");
    if (part.slots.empty()) absl::StrAppend(&table.kind, " none");
    for (const NamedTensor& slot : part.slots) {
      absl::StrAppend(&table.kind, " ",
                      slot.name.substr(slot.name.rfind('/') + 1));
    }
    for (size_t i = 0; i < part.ids.size(); ++i) {
      table.rows.push_back({part.ids[i], &part, i});
    }
  }
  for (auto& [name, table] : tables) {
    std::sort(
        table.rows.begin(), table.rows.end(),
        [](const Table::Row& a, const Table::Row& b) { return a.id < b.id; });
  }
  return tables;
}

double RowDistance(const Table::Row& a, const Table::Row& b) {
  const size_t bytes = a.part->rows.bytes.size() / a.part->ids.size();
  const auto distance = [&](const NamedTensor& x, const NamedTensor& y) {
    return MaxDistance(x.dtype, x.bytes.data() + a.index * bytes,
                       y.bytes.data() + b.index * bytes, bytes);
  };
  double most = distance(a.part->rows, b.part->rows);
  for (size_t s = 0; s < a.part->slots.size(); ++s) {
    most = std::max(most, distance(a.part->slots[s], b.part->slots[s]));
  }
  return most;
}

Difference CompareTable(const std::string& name, const Table& a,
                        const Table& b) {
  Difference difference;
  difference.kind = "table";
  difference.name = name;
  if (a.kind != b.kind) {
    difference.first = a.kind;
    difference.second = b.kind;
    return difference;
  }
  size_t i = 0;
  size_t j = 0;
  while (i < a.rows.size() && j < b.rows.size()) {
    if (a.rows[i].id < b.rows[j].id) {
      ++difference.rows_only_in_first;
      ++i;
    } else if (b.rows[j].id < a.rows[i].id) {
      ++difference.rows_only_in_second;
      ++j;
    } else {
      difference.max_difference = std::max(difference.max_difference,
                                           RowDistance(a.rows[i], b.rows[j]));
      ++i;
      ++j;
    }
  }
  difference.rows_only_in_first += static_cast<int64_t>(a.rows.size() - i);
  difference.rows_only_in_second += static_cast<int64_t>(b.rows.size() - j);
  return difference;
}

void CompareTables(const Loaded& a, const Loaded& b,
                   std::vector<Difference>& out) {
  const std::map<std::string, Table> first = TablesOf(a);
  const std::map<std::string, Table> second = TablesOf(b);
  std::set<std::string> names;
  for (const auto& [name, table] : first) names.insert(name);
  for (const auto& [name, table] : second) names.insert(name);
  for (const std::string& name : names) {
    const auto x = first.find(name);
    const auto y = second.find(name);
    Difference difference;
    if (x != first.end() && y != second.end()) {
      difference = CompareTable(name, x->second, y->second);
    } else {
      difference.kind = "table";
      difference.name = name;
      difference.only_in = x != first.end() ? 1 : 2;
    }
    if (difference.only_in != 0 || difference.first != difference.second ||
        difference.rows_only_in_first > 0 ||
        difference.rows_only_in_second > 0 || difference.max_difference > 0) {
      out.push_back(std::move(difference));
    }
  }
}

std::string LedgerText(const Loaded& loaded) {
  if (!loaded.ledger.has_value()) return "none";
  return absl::StrCat(
      "epoch ", loaded.ledger->epoch() + 1, ", ",
      loaded.ledger->committed_records(), " records committed, ",
      CountRecords(loaded.ledger->outstanding()), " outstanding");
}

}  // namespace

int64_t CountRecords(
    const google::protobuf::RepeatedPtrField<v1::LedgerRange>& ranges) {
  int64_t records = 0;
  for (const v1::LedgerRange& range : ranges) {
    records += range.end() - range.begin();
  }
  return records;
}

double MaxDifference(const NamedTensor& a, const NamedTensor& b) {
  return MaxDistance(a.dtype, a.bytes.data(), b.bytes.data(), a.bytes.size());
}

std::vector<Difference> Compare(const Loaded& a, const Loaded& b) {
  std::vector<Difference> out;
  const auto text = [&](const char* kind, const std::string& first,
                        const std::string& second) {
    if (first == second) return;
    Difference difference;
    difference.kind = kind;
    difference.first = first;
    difference.second = second;
    out.push_back(std::move(difference));
  };
  text("step", absl::StrCat(a.version), absl::StrCat(b.version));
  text("optimizer", a.optimizer, b.optimizer);
  text("optimizer step", absl::StrCat(a.optimizer_step),
       absl::StrCat(b.optimizer_step));
  text("ledger", LedgerText(a), LedgerText(b));
  CompareTensors("variable", a.variables, b.variables, out);
  CompareTensors("slot", a.slots, b.slots, out);
  CompareTables(a, b, out);
  return out;
}

}  // namespace elasticdl::cli
