// Loads a model definition of any kind.
#include "elasticdl/model/loader.h"

#include "elasticdl/common/status.h"
#include "plugin_model.h"
#include "resolve.h"
#include "torchscript_model.h"

namespace elasticdl::model {
namespace {

// Model files call functions of these modules in the program that loads them.
// References here keep the linker from dropping their object files.
[[gnu::used]] const auto kKeepOptim = &optim::Sgd;
[[gnu::used]] const auto kKeepReader = &data::OpenDataReader;
[[gnu::used]] const auto kKeepBuilder = &data::ExampleBuilder::Serialize;

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Load(const LoadOptions& options) {
  ELASTICDL_ASSIGN_OR_RETURN(const Definition definition,
                             ResolveDefinition(options));
  if (definition.kind == Kind::kTorchScript) {
    return LoadTorchScript(options, definition.path);
  }
  ELASTICDL_ASSIGN_OR_RETURN(const std::string library, Compile(options));
  return LoadPlugin(options, definition.path, definition.symbol, library);
}

}  // namespace elasticdl::model
