// Loads a model definition of any kind.
#include "elasticdl/model/loader.h"

#include <set>
#include <utility>
#include <vector>

#include "builtins.h"
#include "declared_names.h"
#include "elasticdl/common/status.h"
#include "plugin_model.h"
#include "resolve.h"
#include "source_scan.h"
#include "torchscript_model.h"

namespace elasticdl::model {
namespace {

// Model files call functions of these modules in the program that loads them.
// References here keep the linker from dropping their object files.
[[gnu::used]] const auto kKeepOptim = &optim::Sgd;
[[gnu::used]] const auto kKeepReader = &data::OpenDataReader;
[[gnu::used]] const auto kKeepBuilder = &data::ExampleBuilder::Serialize;

// A function that a flag names.
struct Wanted {
  const char* flag;
  const std::string& value;
  // Only if the user has named another one than this.
  std::string unless;
  bool builtin = false;
};

std::vector<Wanted> WantedFunctions(const LoadOptions& options) {
  const LoadOptions defaults;
  return {
      {"loss", options.loss, "",
       !absl::IsNotFound(BuiltinLoss(options.loss).status())},
      {"feed", options.feed, "",
       !absl::IsNotFound(BuiltinFeed(options.feed).status())},
      {"optimizer", options.optimizer, "",
       OptimizerSpec::Parse(options.optimizer).ok()},
      {"callbacks", options.callbacks, defaults.callbacks},
      {"custom_data_reader", options.custom_data_reader,
       defaults.custom_data_reader},
      {"prediction_outputs_processor", options.prediction_outputs_processor,
       defaults.prediction_outputs_processor},
  };
}

// To compile a model file takes half a minute; a name that it does not even
// contain is found before that.
absl::Status CheckNames(const LoadOptions& options,
                        const Definition& definition) {
  struct Named {
    const char* flag;
    std::string path;
    std::string symbol;
  };
  std::vector<Named> all = {{"model_def", definition.path, definition.symbol}};
  for (const Wanted& wanted : WantedFunctions(options)) {
    if (wanted.value.empty() || wanted.value == wanted.unless ||
        wanted.builtin || IsExpression(wanted.value)) {
      continue;
    }
    ELASTICDL_ASSIGN_OR_RETURN(
        FunctionName name,
        ResolveFunction(options.model_zoo, wanted.flag, wanted.value));
    if (name.path.empty()) name.path = definition.path;
    all.push_back({wanted.flag, std::move(name.path), std::move(name.symbol)});
  }
  // They are compiled together, so that each may have what another lacks.
  std::vector<SourceFile> sources;
  std::set<std::string> read;
  for (const Named& one : all) {
    if (!read.insert(one.path).second) continue;
    ELASTICDL_ASSIGN_OR_RETURN(
        std::vector<SourceFile> more,
        ReadWithIncludes(one.path, {options.model_zoo}, {}));
    for (SourceFile& source : more) sources.push_back(std::move(source));
  }
  for (const Named& one : all) {
    if (MayDefine(sources, one.symbol)) continue;
    return MissingFunction(one.path, one.symbol, one.flag, sources);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Load(const LoadOptions& options) {
  ELASTICDL_ASSIGN_OR_RETURN(const Definition definition,
                             ResolveDefinition(options));
  if (definition.kind == Kind::kTorchScript) {
    return LoadTorchScript(options, definition.path);
  }
  if (definition.kind == Kind::kSource) {
    ELASTICDL_RETURN_IF_ERROR(CheckNames(options, definition));
  }
  ELASTICDL_ASSIGN_OR_RETURN(const std::string library, Compile(options));
  return LoadPlugin(options, definition.path, definition.symbol, library);
}

}  // namespace elasticdl::model
