// The rules of a .dockerignore file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::docker {

// Thread-compatible. Which files a .dockerignore file excludes, by Docker's
// rules: lines that start with '#' are comments; the last line that matches a
// path or a folder above it decides; '!' includes again; '*' and '?' do not
// match '/', '**' does; paths are relative to the root of the context.
class DockerIgnore {
 public:
  DockerIgnore() = default;
  // INVALID_ARGUMENT names the line that is not a pattern.
  static absl::StatusOr<DockerIgnore> Parse(absl::string_view text);

  // Is `path` (relative, '/' between parts) excluded?
  bool Excludes(absl::string_view path) const;
  // Are there '!' lines? Then files below an excluded folder may be included.
  bool has_exceptions() const { return has_exceptions_; }

 private:
  struct Rule {
    std::string pattern;
    bool exception = false;
  };
  std::vector<Rule> rules_;
  bool has_exceptions_ = false;
};

// Does the whole of `path` match `pattern` of a .dockerignore file? Pure.
bool MatchesPattern(absl::string_view pattern, absl::string_view path);

}  // namespace elasticdl::docker
