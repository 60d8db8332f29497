// One line of an event log, for a History.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "elasticdl/common/text.h"
#include "elasticdl/page/history.h"

namespace elasticdl::page {

inline std::string Cut(std::string text, size_t most = History::kMaxText) {
  return CutText(std::move(text), most);
}

// The texts in logs that do not say whether the master asked (as in panels.js).
inline bool IsOrderly(const std::string& reason) {
  return absl::StartsWith(reason, "left") ||
         absl::StrContains(reason, "scaled away") ||
         absl::StrContains(reason, "announced") ||
         absl::StrContains(reason, "exit code 0") ||
         absl::StrContains(reason, "has ended");
}

// A line with typed access: what is missing or of another type is empty.
struct History::Event {
  double time = 0;
  std::string name;
  nlohmann::ordered_json json;

  std::string Text(const char* key) const {
    const auto it = json.find(key);
    return it != json.end() && it->is_string() ? Cut(it->get<std::string>())
                                               : "";
  }
  std::optional<double> Real(const char* key) const {
    const auto it = json.find(key);
    if (it == json.end() || !it->is_number()) return std::nullopt;
    const double value = it->get<double>();
    return std::isfinite(value) ? std::optional(value) : std::nullopt;
  }
  double Number(const char* key) const { return Real(key).value_or(0); }
  int64_t Whole(const char* key, int64_t otherwise = 0) const {
    const auto it = json.find(key);
    return it != json.end() && it->is_number_integer() ? it->get<int64_t>()
                                                       : otherwise;
  }
  bool Is(const char* key) const {
    const auto it = json.find(key);
    return it != json.end() && it->is_boolean() && it->get<bool>();
  }
  // Nobody had asked the worker or server to go.
  bool IsLoss() const {
    return Is("failure") || (!Is("asked") && !IsOrderly(Text("reason")));
  }
};

}  // namespace elasticdl::page
