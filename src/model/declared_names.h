// The names of functions and classes in a model file, found without compiling
// it: a misspelt name is told at once, with the name that was meant.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "source_scan.h"

namespace elasticdl::model {

// Functions and classes that `source` declares at its top level or in a
// namespace, in order of appearance. Not a parser: it may miss some, and is for
// messages only.
std::vector<std::string> DeclaredNames(absl::string_view source);

// Does some source contain the word, outside comments? True also if that cannot
// be known, because a macro may put names together.
bool MayDefine(const std::vector<SourceFile>& sources, const std::string& word);

// INVALID_ARGUMENT: the file at `path` has no such function; which one is meant
// by --`flag`, or which ones it has. `sources`: it and what it includes, as far
// as that is known.
absl::Status MissingFunction(const std::string& path, const std::string& symbol,
                             const std::string& flag,
                             const std::vector<SourceFile>& sources);

}  // namespace elasticdl::model
