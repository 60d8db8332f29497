// Reads YAML with the first error kept, as "file:line: message".
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace elasticdl::experiment {

// Thread-compatible. After an error, values are defaults and further errors are
// dropped, so that callers check once.
class PlanReader {
 public:
  explicit PlanReader(std::string file) : file_(std::move(file)) {}

  void Fail(const YAML::Node& where, const std::string& message);
  // `status` is the error of a value at `where`; OK is none.
  void Check(const YAML::Node& where, const absl::Status& status);
  // An error that has its own place.
  void FailAsIs(const absl::Status& status);
  const absl::Status& status() const { return status_; }

  // Is it a mapping with these keys and no others, none twice?
  bool Keys(const YAML::Node& map, const std::string& what,
            const std::vector<std::string>& known);
  // A scalar's text; `what` names it in errors.
  std::string Text(const YAML::Node& node, const std::string& what);
  int64_t Integer(const YAML::Node& node, const std::string& what, int64_t min);
  double Number(const YAML::Node& node, const std::string& what);
  double Seconds(const YAML::Node& node, const std::string& what);
  // A scalar or a list of them; an empty list is an error.
  std::vector<YAML::Node> List(const YAML::Node& node, const std::string& what);

  static int Line(const YAML::Node& node) { return node.Mark().line + 1; }

 private:
  const std::string file_;
  absl::Status status_;
};

}  // namespace elasticdl::experiment
