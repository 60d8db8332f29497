#include "doctor/finding.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/json_text.h"

namespace elasticdl::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

const char* StateName(Finding::State state) {
  switch (state) {
    case Finding::State::kOk:
      return "ok";
    case Finding::State::kNote:
      return "note";
    case Finding::State::kProblem:
      return "problem";
  }
  return "";
}

}  // namespace

std::string DescribeFindings(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    absl::StrAppendFormat(&text, "%-8s %-15s %s\n", StateName(finding.state),
                          finding.name, finding.detail);
    if (finding.state != Finding::State::kOk && !finding.advice.empty()) {
      absl::StrAppendFormat(&text, "%-24s -> %s\n", "", finding.advice);
    }
  }
  return text;
}

std::string FindingsToJson(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    const OrderedJson json = {{"state", StateName(finding.state)},
                              {"name", finding.name},
                              {"detail", finding.detail},
                              {"advice", finding.advice}};
    absl::StrAppend(&text, JsonText(json), "\n");
  }
  return text;
}

std::vector<Finding> FindingsFromJson(const std::string& text) {
  std::vector<Finding> findings;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const OrderedJson json = ParseOrderedJson(line);
    if (!json.is_object()) continue;
    const auto field = [&](const char* key) {
      const auto it = json.find(key);
      return it != json.end() && it->is_string() ? it->get<std::string>()
                                                 : std::string();
    };
    Finding finding;
    const std::string state = field("state");
    finding.state = state == "ok"     ? Finding::State::kOk
                    : state == "note" ? Finding::State::kNote
                                      : Finding::State::kProblem;
    finding.name = field("name");
    finding.detail = field("detail");
    finding.advice = field("advice");
    if (!finding.name.empty()) findings.push_back(std::move(finding));
  }
  return findings;
}

bool HasProblem(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& one) {
    return one.state == Finding::State::kProblem;
  });
}

}  // namespace elasticdl::cli
