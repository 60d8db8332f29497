// Scans C++ sources for includes and class definitions. Not a parser: it strips
// comments, but does not understand strings and macros.
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

// `path` and all files that it includes, directly or indirectly, and that are
// found in its own folder, in `quote_dirs` (for "…"), or below `elasticdl/` in
// `include_dirs`. Each once, in order of appearance. Other includes are system
// headers.
absl::StatusOr<std::vector<SourceFile>> ReadWithIncludes(
    const std::string& path, const std::vector<std::string>& quote_dirs,
    const std::vector<std::string>& include_dirs);

// Removes // and /* */ comments; keeps line numbers.
std::string StripComments(absl::string_view source);

// True if `source` defines `struct name` or `class name`, or has
// TORCH_MODULE(name).
bool DefinesClass(const std::string& source, const std::string& name);

}  // namespace elasticdl::model
