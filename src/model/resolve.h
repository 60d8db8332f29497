// Resolves --model_zoo, --model_def and function names to files and symbols.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/model/compiler.h"

namespace elasticdl::model {

enum class Kind { kSource, kLibrary, kTorchScript };

// Where the model is defined.
struct Definition {
  Kind kind = Kind::kSource;
  std::string path;
  // The function or class that creates the network (kSource).
  std::string symbol;
};

// NOT_FOUND names the files that were tried, the zoo, and files of that name in
// other folders of the zoo.
absl::StatusOr<Definition> ResolveDefinition(const LoadOptions& options);

// A function name, possibly in another file of the zoo ("a.b.fn").
struct FunctionName {
  // "" = the file that defines the model.
  std::string path;
  std::string symbol;
};

// INVALID_ARGUMENT names `flag` if `value` is not a name.
absl::StatusOr<FunctionName> ResolveFunction(const std::string& model_zoo,
                                             const std::string& flag,
                                             const std::string& value);

bool IsIdentifier(const std::string& text);

// True for text such as "cross_entropy(smoothing=0.1)", which cannot name a
// function of a file.
bool IsExpression(const std::string& text);

}  // namespace elasticdl::model
