// Text such as "image_classification(shape=1x28x28,scale=255)": a name and
// arguments.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::model {

struct Expression {
  std::string name;
  std::map<std::string, std::string> args;

  // INVALID_ARGUMENT names an argument that is not in `known`.
  absl::Status CheckArgs(const std::set<std::string>& known) const;
  // The argument's value, or the fallback.
  std::string Get(const std::string& key, const std::string& fallback) const;
  absl::StatusOr<double> Number(const std::string& key, double fallback) const;
};

// "name" or "name(k=v,k=v)"; INVALID_ARGUMENT otherwise.
absl::StatusOr<Expression> ParseExpression(absl::string_view text);

// Splits "a(x=1),b" into {"a(x=1)", "b"}: at commas outside parentheses.
std::vector<std::string> SplitList(absl::string_view text);

// Parses "k=v;k=v" (--model_params); removes blanks and quotes around values.
absl::StatusOr<std::map<std::string, std::string>> ParseKeyValues(
    absl::string_view text);

}  // namespace elasticdl::model
