// A light look at C++ sources: what they include, which classes they define.
// Not a parser; comments are stripped, strings and macros are not understood.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::model {

struct SourceFile {
  std::string path;
  std::string content;
};

// `path` and all files it includes, directly or not, that are found in its own
// folder, in `quote_dirs` (for "…"), or below `elasticdl/` in `include_dirs`.
// Each once, in order of appearance. Other includes are the system's.
absl::StatusOr<std::vector<SourceFile>> ReadWithIncludes(
    const std::string& path, const std::vector<std::string>& quote_dirs,
    const std::vector<std::string>& include_dirs);

// Without // and /* */ comments; line numbers stay.
std::string StripComments(absl::string_view source);

// True when `source` defines `struct name` or `class name`, or has
// TORCH_MODULE(name).
bool DefinesClass(const std::string& source, const std::string& name);

}  // namespace elasticdl::model
