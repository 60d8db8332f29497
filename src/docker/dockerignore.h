// The rules of a .dockerignore file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::docker {

// Thread-compatible. What a .dockerignore file leaves out, as Docker reads it:
// lines that start with '#' are comments; the last line that matches a path or
// a folder above it decides; '!' takes back in; '*' and '?' do not match '/',
// '**' does; paths are relative to the root of the context.
class DockerIgnore {
 public:
  DockerIgnore() = default;
  // INVALID_ARGUMENT names the line that is no pattern.
  static absl::StatusOr<DockerIgnore> Parse(absl::string_view text);

  // Is `path` (relative, '/' between parts) left out?
  bool Excludes(absl::string_view path) const;
  // Are there '!' lines? Then something below an excluded folder may be in.
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
