#include "plan_reader.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/experiment/trace.h"

namespace elasticdl::experiment {

void PlanReader::Fail(const YAML::Node& where, const std::string& message) {
  FailAsIs(absl::InvalidArgumentError(
      absl::StrCat(file_, ":", Line(where), ": ", message)));
}

void PlanReader::Check(const YAML::Node& where, const absl::Status& status) {
  if (!status.ok()) Fail(where, std::string(status.message()));
}

void PlanReader::FailAsIs(const absl::Status& status) {
  // The first error stays: later ones often follow from it.
  status_.Update(status);
}

bool PlanReader::Keys(const YAML::Node& map, const std::string& what,
                      const std::vector<std::string>& known) {
  if (!map.IsMap()) {
    Fail(map, absl::StrCat(what, " must be a mapping (name: value)"));
    return false;
  }
  std::set<std::string> seen;
  for (const auto& entry : map) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    if (!known.empty() &&
        std::find(known.begin(), known.end(), key) == known.end()) {
      Fail(entry.first, absl::StrCat("unknown '", key, "' in ", what,
                                     "; known: ", absl::StrJoin(known, ", ")));
      return false;
    }
    if (!seen.insert(key).second) {
      Fail(entry.first, absl::StrCat("'", key, "' is there twice in ", what));
      return false;
    }
  }
  return true;
}

std::string PlanReader::Text(const YAML::Node& node, const std::string& what) {
  if (node.IsScalar() && !node.Scalar().empty()) return node.Scalar();
  Fail(node, absl::StrCat(what, " must be one value"));
  return "";
}

int64_t PlanReader::Integer(const YAML::Node& node, const std::string& what,
                            int64_t min) {
  const std::string text = Text(node, what);
  int64_t value = min;
  if (status_.ok() && (!absl::SimpleAtoi(text, &value) || value < min)) {
    Fail(node,
         absl::StrCat(what, ": '", text, "' is not a whole number from ", min));
    return min;
  }
  return value;
}

double PlanReader::Number(const YAML::Node& node, const std::string& what) {
  const std::string text = Text(node, what);
  double value = 0;
  if (status_.ok() && !absl::SimpleAtod(text, &value)) {
    Fail(node, absl::StrCat(what, ": '", text, "' is not a number"));
  }
  return value;
}

double PlanReader::Seconds(const YAML::Node& node, const std::string& what) {
  const std::string text = Text(node, what);
  if (!status_.ok()) return 0;
  const absl::StatusOr<double> seconds = ParseSeconds(text);
  if (seconds.ok()) return *seconds;
  Fail(node, absl::StrCat(what, ": ", seconds.status().message()));
  return 0;
}

std::vector<YAML::Node> PlanReader::List(const YAML::Node& node,
                                         const std::string& what) {
  std::vector<YAML::Node> list;
  if (node.IsScalar()) {
    list.push_back(node);
  } else if (node.IsSequence()) {
    for (const YAML::Node& one : node) list.push_back(one);
  }
  if (list.empty()) Fail(node, absl::StrCat(what, " must have a value"));
  return list;
}

}  // namespace elasticdl::experiment
