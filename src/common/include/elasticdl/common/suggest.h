// "Did you mean …?" for misspelt names.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace elasticdl {

// Edits (insert, delete, replace, swap of neighbours) that turn a into b.
size_t EditDistance(absl::string_view a, absl::string_view b);

// The nearest of `names`, or "" when none is near enough to be meant. '-' and
// '_' count as equal, small and capital letters too; a name that `word` is the
// beginning of is near.
std::string Nearest(absl::string_view word,
                    const std::vector<std::string>& names);

}  // namespace elasticdl
