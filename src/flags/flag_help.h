// The text of --help.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "elasticdl/flags/flag_set.h"

namespace elasticdl::flags {

// Breaks `text` at spaces into lines of at most `width` characters.
std::vector<std::string> Wrap(absl::string_view text, size_t width);

struct PositionalDescription {
  std::string name;
  std::string help;
  size_t min_count;
  size_t max_count;
};

// At most 90 columns; groups in the order of their first flag.
std::string FormatHelp(const std::string& command, const std::string& summary,
                       const std::vector<PositionalDescription>& positionals,
                       const std::vector<FlagSet::Description>& flags);

}  // namespace elasticdl::flags
