#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "elasticdl/ledger_audit.h"

namespace elasticdl {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostPlaces = 10;

bool HasInteger(const Json& line, const char* key) {
  return line.contains(key) && line.at(key).is_number_integer();
}

}  // namespace

absl::Status LedgerAudit::Read(std::istream& in) {
  std::string text;
  for (int64_t number = 1; std::getline(in, text); ++number) {
    if (text.empty()) continue;
    const absl::Status added = AddLine(text);
    if (!added.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", added.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status LedgerAudit::AddLine(const std::string& text) {
  const Json line = ParseJson(text);
  if (!line.is_object()) return absl::InvalidArgumentError("no JSON object");
  if (HasInteger(line, "cut_back")) {
    // A rollback: what came after this step is no longer in the model.
    const int64_t step = line.at("cut_back").get<int64_t>();
    for (auto& [key, list] : ranges_) {
      list.erase(std::remove_if(
                     list.begin(), list.end(),
                     [&](const AuditRange& one) { return one.step > step; }),
                 list.end());
    }
    return absl::OkStatus();
  }
  if (!HasInteger(line, "epoch") || !HasInteger(line, "begin") ||
      !HasInteger(line, "end") || !HasInteger(line, "step") ||
      !line.contains("shard") || !line.at("shard").is_string()) {
    return absl::InvalidArgumentError(
        "epoch, shard, begin, end or step is missing");
  }
  const AuditRange range = {line.at("begin").get<int64_t>(),
                            line.at("end").get<int64_t>(),
                            line.at("step").get<int64_t>()};
  if (range.begin < 0 || range.begin >= range.end) {
    return absl::InvalidArgumentError(
        absl::StrCat("from ", range.begin, " to ", range.end, " is no range"));
  }
  ranges_[{line.at("epoch").get<int64_t>(),
           line.at("shard").get<std::string>()}]
      .push_back(range);
  return absl::OkStatus();
}

AuditResult LedgerAudit::Check() const {
  AuditResult result;
  for (const auto& [key, unsorted] : ranges_) {
    std::vector<AuditRange> list = unsorted;
    std::sort(list.begin(), list.end(),
              [](const AuditRange& a, const AuditRange& b) {
                return a.begin < b.begin;
              });
    AuditEpoch& epoch = result.epochs[key.first];
    // Positions below `end` were seen, the last of them at `step`.
    int64_t end = 0;
    int64_t step = 0;
    for (const AuditRange& one : list) {
      const int64_t again =
          std::max<int64_t>(0, std::min(end, one.end) - one.begin);
      if (again > 0 && result.places.size() < kMostPlaces) {
        result.places.push_back(
            absl::StrCat("epoch ", key.first + 1, ", ", key.second,
                         ", positions ", one.begin, " to ", one.begin + again,
                         ": at steps ", step, " and ", one.step));
      }
      epoch.twice += again;
      epoch.records += one.end - one.begin - again;
      if (one.end > end) {
        end = one.end;
        step = one.step;
      }
    }
  }
  for (const auto& [number, epoch] : result.epochs) {
    result.records += epoch.records;
    result.twice += epoch.twice;
  }
  return result;
}

}  // namespace elasticdl
