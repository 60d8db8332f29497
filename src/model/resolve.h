// From --model_zoo, --model_def and the other names to files and symbols.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/model/compiler.h"

namespace elasticdl::model {

enum class Kind { kSource, kLibrary, kTorchScript };

// Where the definition is.
struct Definition {
  Kind kind = Kind::kSource;
  std::string path;
  // Function or class that makes the network (kSource).
  std::string symbol;
};

// NOT_FOUND names the files that were looked for.
absl::StatusOr<Definition> ResolveDefinition(const LoadOptions& options);

// A function by name, perhaps in another file of the zoo ("a.b.fn").
struct FunctionName {
  // "" = the file of the definition.
  std::string path;
  std::string symbol;
};

// INVALID_ARGUMENT names `flag` when `value` is no name.
absl::StatusOr<FunctionName> ResolveFunction(const std::string& model_zoo,
                                             const std::string& flag,
                                             const std::string& value);

bool IsIdentifier(const std::string& text);

// True for text such as "cross_entropy(smoothing=0.1)", which cannot name a
// function of a file.
bool IsExpression(const std::string& text);

}  // namespace elasticdl::model
