#include "dockerignore.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace elasticdl::docker {
namespace {

constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Matches one character of a pattern with one of a path. `length` is how much
// of the pattern it uses; 0 when the pattern is invalid (a '[' without its
// end).
bool MatchesOne(absl::string_view pattern, char c, size_t* length) {
  if (pattern[0] == '?') {
    *length = 1;
    return c != '/';
  }
  if (pattern[0] == '\\' && pattern.size() > 1) {
    *length = 2;
    return c == pattern[1];
  }
  if (pattern[0] != '[') {
    *length = 1;
    return c == pattern[0];
  }
  size_t at = 1;
  const bool negated = at < pattern.size() && pattern[at] == '^';
  if (negated) ++at;
  bool found = false;
  const size_t first = at;
  while (at < pattern.size() && (pattern[at] != ']' || at == first)) {
    if (pattern[at] == '\\' && at + 1 < pattern.size()) ++at;
    const char low = pattern[at++];
    char high = low;
    if (at + 1 < pattern.size() && pattern[at] == '-' &&
        pattern[at + 1] != ']') {
      if (pattern[++at] == '\\' && at + 1 < pattern.size()) ++at;
      high = pattern[at++];
    }
    found |= low <= c && c <= high;
  }
  *length = at < pattern.size() ? at + 1 : 0;
  return *length != 0 && c != '/' && found != negated;
}

bool IsValid(absl::string_view pattern) {
  while (!pattern.empty()) {
    size_t length = 1;
    if (pattern[0] != '*') MatchesOne(pattern, 'x', &length);
    if (length == 0) return false;
    pattern.remove_prefix(length);
  }
  return true;
}

// The shortest form of a path: no "//", ".", "..", no slash at either end.
std::string CleanPath(absl::string_view path) {
  std::vector<absl::string_view> parts;
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == ".." && !parts.empty()) {
      parts.pop_back();
    } else if (part != "..") {
      parts.push_back(part);
    }
  }
  return parts.empty() ? "." : absl::StrJoin(parts, "/");
}

}  // namespace

bool MatchesPattern(absl::string_view pattern, absl::string_view path) {
  while (!pattern.empty()) {
    if (absl::ConsumePrefix(&pattern, "**")) {
      absl::ConsumePrefix(&pattern, "/");
      if (pattern.empty()) return true;
      // Nothing, or whole folders.
      if (MatchesPattern(pattern, path)) return true;
      for (size_t at = path.find('/'); at != path.npos;
           at = path.find('/', at + 1)) {
        if (MatchesPattern(pattern, path.substr(at + 1))) return true;
      }
      return false;
    }
    if (absl::ConsumePrefix(&pattern, "*")) {
      for (size_t at = 0;; ++at) {
        if (MatchesPattern(pattern, path.substr(at))) return true;
        if (at == path.size() || path[at] == '/') return false;
      }
    }
    size_t length = 0;
    if (path.empty() || !MatchesOne(pattern, path[0], &length)) return false;
    pattern.remove_prefix(length);
    path.remove_prefix(1);
  }
  return path.empty();
}

absl::StatusOr<DockerIgnore> DockerIgnore::Parse(absl::string_view text) {
  DockerIgnore ignore;
  absl::ConsumePrefix(&text, kByteOrderMark);
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::StartsWith(line, "#")) continue;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    Rule rule;
    rule.exception = absl::ConsumePrefix(&line, "!");
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || !IsValid(line)) {
      return absl::InvalidArgumentError(absl::StrCat(
          ".dockerignore:", number, ": '", line, "' is not a pattern"));
    }
    rule.pattern = CleanPath(line);
    // The whole context; Docker ignores this line too.
    if (rule.pattern == ".") continue;
    ignore.has_exceptions_ |= rule.exception;
    ignore.rules_.push_back(std::move(rule));
  }
  return ignore;
}

bool DockerIgnore::Excludes(absl::string_view path) const {
  bool excluded = false;
  for (const Rule& rule : rules_) {
    // It would change nothing.
    if (rule.exception != excluded) continue;
    bool matches = MatchesPattern(rule.pattern, path);
    for (size_t at = path.find('/'); !matches && at != path.npos;
         at = path.find('/', at + 1)) {
      matches = MatchesPattern(rule.pattern, path.substr(0, at));
    }
    if (matches) excluded = !rule.exception;
  }
  return excluded;
}

}  // namespace elasticdl::docker
