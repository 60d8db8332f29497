// One line of an event log or audit; its content is not trusted.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "elasticdl/common/json_text.h"

namespace elasticdl::experiment {

// Thread-compatible.
class EventLine {
 public:
  explicit EventLine(absl::string_view line) : json_(ParseJson(line)) {}

  bool valid() const { return json_.is_object(); }
  bool Has(const char* key) const { return valid() && json_.contains(key); }
  bool Is(const char* event) const { return Text("event") == event; }
  double Number(const char* key, double otherwise = 0) const {
    if (!Has(key) || !json_.at(key).is_number()) return otherwise;
    return json_.at(key).get<double>();
  }
  std::string Text(const char* key) const {
    if (!Has(key) || !json_.at(key).is_string()) return "";
    return json_.at(key).get<std::string>();
  }
  std::vector<int64_t> Integers(const char* key) const {
    std::vector<int64_t> numbers;
    if (!Has(key) || !json_.at(key).is_array()) return numbers;
    for (const auto& one : json_.at(key)) {
      if (one.is_number_integer()) numbers.push_back(one.get<int64_t>());
    }
    return numbers;
  }
  const nlohmann::json& json() const { return json_; }

 private:
  nlohmann::json json_;
};

}  // namespace elasticdl::experiment
