// A name and arguments.
#include "expression.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/status.h"
#include "resolve.h"

namespace elasticdl::model {
namespace {

std::string Unquote(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.size() >= 2 && (text[0] == '\'' || text[0] == '"') &&
      text.back() == text[0]) {
    text = text.substr(1, text.size() - 2);
  }
  return std::string(text);
}

absl::StatusOr<std::map<std::string, std::string>> ParsePairs(
    absl::string_view text, char separator) {
  std::map<std::string, std::string> pairs;
  for (absl::string_view part : absl::StrSplit(text, separator)) {
    part = absl::StripAsciiWhitespace(part);
    if (part.empty()) continue;
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    std::string key(absl::StripAsciiWhitespace(pair.first));
    if (!IsIdentifier(key) || !absl::StrContains(part, '=')) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "' is not name=value"));
    }
    if (!pairs.emplace(std::move(key), Unquote(pair.second)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", pair.first, "' is given twice"));
    }
  }
  return pairs;
}

}  // namespace

absl::Status Expression::CheckArgs(const std::set<std::string>& known) const {
  for (const auto& [key, value] : args) {
    if (known.count(key) != 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has no argument '", key, "'; it has ",
                     known.empty() ? "none" : absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

std::string Expression::Get(const std::string& key,
                            const std::string& fallback) const {
  const auto it = args.find(key);
  return it == args.end() ? fallback : it->second;
}

absl::StatusOr<double> Expression::Number(const std::string& key,
                                          double fallback) const {
  const auto it = args.find(key);
  if (it == args.end()) return fallback;
  double value = 0;
  if (absl::SimpleAtod(it->second, &value)) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", key, "=", it->second, " is not a number"));
}

absl::StatusOr<Expression> ParseExpression(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  Expression expression;
  const size_t open = text.find('(');
  expression.name = std::string(
      absl::StripAsciiWhitespace(text.substr(0, std::min(open, text.size()))));
  const bool closes = open == absl::string_view::npos || text.back() == ')';
  if (!IsIdentifier(expression.name) || !closes) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not name or name(argument=value,...)"));
  }
  if (open == absl::string_view::npos) return expression;
  auto args = ParsePairs(text.substr(open + 1, text.size() - open - 2), ',');
  if (!args.ok()) return Annotate(args.status(), expression.name);
  expression.args = *std::move(args);
  return expression;
}

std::vector<std::string> SplitList(absl::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  return parts;
}

absl::StatusOr<std::map<std::string, std::string>> ParseKeyValues(
    absl::string_view text) {
  return ParsePairs(text, ';');
}

}  // namespace elasticdl::model
