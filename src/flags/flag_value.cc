#include "flag_value.h"

#include <cmath>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/suggest.h"

namespace elasticdl::flags {
namespace {

absl::Status BadValue(const std::string& text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' ", why));
}

std::string Format(const std::string& value) { return value; }
std::string Format(int64_t value) { return absl::StrCat(value); }
std::string Format(bool value) { return value ? "true" : "false"; }
std::string Format(double value) {
  // The shortest text that reads back as the same number.
  char text[32];
  for (int digits = 6; digits <= 17; ++digits) {
    std::snprintf(text, sizeof(text), "%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) break;
  }
  return text;
}

absl::Status CheckBounds(const std::string& text, const FlagInfo& info,
                         double value) {
  if (info.min && value < *info.min) {
    return BadValue(
        text, absl::StrCat("is too small, the least is ", Format(*info.min)));
  }
  if (info.max && value > *info.max) {
    return BadValue(
        text, absl::StrCat("is too large, the most is ", Format(*info.max)));
  }
  return absl::OkStatus();
}

absl::Status Parse(const std::string& text, const FlagInfo& info,
                   std::string* target) {
  std::string value = text;
  if (!info.choices.empty()) {
    bool found = false;
    for (const std::string& choice : info.choices) {
      if (absl::AsciiStrToLower(choice) == absl::AsciiStrToLower(text)) {
        value = choice;
        found = true;
      }
    }
    if (!found) {
      std::vector<std::string> shown;
      for (const std::string& choice : info.choices) {
        if (!choice.empty()) shown.push_back(choice);
      }
      const std::string nearest = Nearest(text, shown);
      return BadValue(
          text, absl::StrCat("is not one of ", absl::StrJoin(shown, ", "),
                             nearest.empty() ? "" : "; did you mean ", nearest,
                             nearest.empty() ? "" : "?"));
    }
  }
  if (info.check) ELASTICDL_RETURN_IF_ERROR(info.check(value));
  *target = value;
  return absl::OkStatus();
}

absl::Status Parse(const std::string& text, const FlagInfo& info,
                   int64_t* target) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value))
    return BadValue(text, "is not an integer");
  ELASTICDL_RETURN_IF_ERROR(
      CheckBounds(text, info, static_cast<double>(value)));
  *target = value;
  return absl::OkStatus();
}

absl::Status Parse(const std::string& text, const FlagInfo& info,
                   double* target) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) {
    return BadValue(text, "is not a number");
  }
  ELASTICDL_RETURN_IF_ERROR(CheckBounds(text, info, value));
  *target = value;
  return absl::OkStatus();
}

absl::Status Parse(const std::string& text, const FlagInfo& /*info*/,
                   bool* target) {
  if (!ParseBool(text, *target)) {
    return BadValue(text,
                    "is neither true (yes, t, y, 1) nor false (no, f, n, 0)");
  }
  return absl::OkStatus();
}

}  // namespace

bool ParseBool(absl::string_view text, bool& value) {
  const std::string lower = absl::AsciiStrToLower(text);
  for (const char* word : {"true", "yes", "t", "y", "1"}) {
    if (lower == word) {
      value = true;
      return true;
    }
  }
  for (const char* word : {"false", "no", "f", "n", "0"}) {
    if (lower == word) {
      value = false;
      return true;
    }
  }
  return false;
}

absl::Status ParseValue(const std::string& text, const FlagInfo& info,
                        const FlagTarget& target) {
  return std::visit([&](auto* typed) { return Parse(text, info, typed); },
                    target);
}

std::string FormatValue(const FlagTarget& target) {
  return std::visit([](auto* typed) { return Format(*typed); }, target);
}

std::string TypeName(const FlagTarget& target) {
  static constexpr const char* kNames[] = {"string", "int", "float", "bool"};
  return kNames[target.index()];
}

}  // namespace elasticdl::flags
