// A model from a TorchScript file.
#include "torchscript_model.h"

#include <torch/script.h>

#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "model_base.h"
#include "named_once.h"

namespace elasticdl::model {
namespace {

c10::IValue ToDict(const Features& features) {
  c10::Dict<std::string, torch::Tensor> dict;
  for (const auto& [name, tensor] : features.items()) dict.insert(name, tensor);
  return dict;
}

// The arguments for a forward with these parameters (without self): all
// features as a dictionary, the only feature, or features matched by name.
std::vector<c10::IValue> Arguments(const std::vector<c10::Argument>& parameters,
                                   const Features& features) {
  if (parameters.size() == 1 &&
      parameters[0].type()->kind() == c10::TypeKind::DictType) {
    return {ToDict(features)};
  }
  if (features.size() == 1) return {features.tensor()};
  std::vector<c10::IValue> arguments;
  for (const c10::Argument& parameter : parameters) {
    if (!features.Has(parameter.name()) && parameter.default_value()) break;
    arguments.emplace_back(features.at(parameter.name()));
  }
  return arguments;
}

Outputs ToOutputs(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  Outputs outputs;
  if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    for (size_t i = 0; i < elements.size(); ++i) {
      outputs.Add(std::to_string(i), elements[i].toTensor());
    }
    return outputs;
  }
  if (!value.isGenericDict()) {
    throw std::invalid_argument("forward returned " + value.tagKind() +
                                ", not a tensor, tuple or dictionary");
  }
  for (const auto& item : value.toGenericDict()) {
    outputs.Add(item.key().toStringRef(), item.value().toTensor());
  }
  return outputs;
}

// A parameter with two names in a file may have been loaded as two tensors that
// share their memory. They become one again: else each would get memory, and a
// gradient, of its own.
void TieParameters(const torch::jit::Module& module) {
  struct Named {
    std::string name;
    torch::Tensor value;
  };
  std::map<const void*, Named> first;
  std::vector<std::pair<std::string, torch::Tensor>> again;
  for (const auto& item : module.named_parameters()) {
    const auto [at, is_new] =
        first.try_emplace(item.value.data_ptr(), Named{item.name, item.value});
    if (is_new || item.value.numel() == 0 ||
        item.value.is_same(at->second.value)) {
      continue;
    }
    // One of them cannot stand for the other: a frozen copy is not trained, and
    // a transposed one has other gradients.
    if (item.value.requires_grad() != at->second.value.requires_grad() ||
        item.value.sizes() != at->second.value.sizes() ||
        item.value.strides() != at->second.value.strides()) {
      LogWarning("parameters ", at->second.name, " and ", item.name,
                 " share memory in the file, but differ in shape, layout or in "
                 "what is trained: from now on they are two");
      continue;
    }
    again.emplace_back(item.name, at->second.value);
  }
  for (const auto& [name, tensor] : again) {
    torch::jit::Module owner = module;
    std::vector<std::string> path = absl::StrSplit(name, '.');
    const std::string attribute = std::move(path.back());
    path.pop_back();
    for (const std::string& part : path) owner = owner.attr(part).toModule();
    owner.setattr(attribute, tensor);
  }
}

class ScriptNetwork : public Network {
 public:
  ScriptNetwork(std::string path, const torch::jit::Module& module)
      : path_(std::move(path)), module_(module) {
    TieParameters(module_);
    NamedOnce named;
    for (const auto& item : module_.named_parameters()) {
      named.Add(item.name, item.value);
    }
    parameters_ = named.Take();
    for (const auto& item : module_.named_buffers()) {
      named.Add(item.name, item.value);
    }
    buffers_ = named.Take();
    other_names_ = named.TakeOthers();
    const auto& schema = module_.get_method("forward").function().getSchema();
    forward_parameters_.assign(schema.arguments().begin() + 1,
                               schema.arguments().end());
  }

  const Tensors& parameters() const override { return parameters_; }
  const Tensors& buffers() const override { return buffers_; }
  Tensors OtherNames() const override { return other_names_; }
  void Train() override { module_.train(); }
  void Eval() override { module_.eval(); }

  absl::StatusOr<Outputs> Forward(const Features& features) override {
    Outputs outputs;
    ELASTICDL_RETURN_IF_ERROR(CallUser(path_, "forward", [&] {
      outputs =
          ToOutputs(module_.forward(Arguments(forward_parameters_, features)));
    }));
    return outputs;
  }

  const std::vector<ShardedTable>& tables() const override { return tables_; }
  void SetRowSource(RowSource* /*source*/) override {}

  std::map<std::string, std::string> LayerTypes() const override {
    std::map<std::string, std::string> types;
    std::string error;
    plugin::Guard(&error, [&] {
      for (const auto& item : module_.named_modules()) {
        const auto name = item.value.type()->name();
        if (name.has_value()) types.emplace(item.name, name->name());
      }
    });
    return types;
  }

  absl::StatusOr<std::string> Serialize() const override {
    std::ostringstream out;
    ELASTICDL_RETURN_IF_ERROR(
        CallUser(path_, "save", [&] { module_.save(out); }));
    return std::move(out).str();
  }

 private:
  const std::string path_;
  torch::jit::Module module_;
  std::vector<c10::Argument> forward_parameters_;
  Tensors parameters_;
  Tensors buffers_;
  Tensors other_names_;
  const std::vector<ShardedTable> tables_;
};

class ScriptModel : public ModelBase {
 public:
  ScriptModel(const LoadOptions& options, std::string path)
      : ModelBase(std::move(path), options) {}

  absl::Status Init();

  absl::StatusOr<std::unique_ptr<Network>> CreateNetwork(
      const NetworkOptions& options) override {
    std::unique_ptr<Network> network;
    // The weights come from the file, but dropout etc. still use the seed.
    torch::manual_seed(options.seed);
    std::string error;
    if (!plugin::Guard(&error, [&] {
          network =
              std::make_unique<ScriptNetwork>(path(), torch::jit::load(path()));
        })) {
      return absl::InvalidArgumentError(
          absl::StrCat("loading TorchScript file ", path(), ": ", error));
    }
    return network;
  }
  absl::StatusOr<std::unique_ptr<data::DataReader>> OpenReader(
      const std::string&, const data::ReaderParams&) override {
    return std::unique_ptr<data::DataReader>();
  }
  absl::StatusOr<std::unique_ptr<PredictionProcessor>>
  CreatePredictionProcessor(const std::string& /*output_dir*/) override {
    return std::unique_ptr<PredictionProcessor>();
  }

 private:
  absl::Status FlagError(const std::string& flag, const std::string& value,
                         const absl::Status& status) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", value, " with TorchScript model ", path(),
                     ": ", status.message()));
  }
};

absl::Status ScriptModel::Init() {
  Functions functions;
  auto loss = BuiltinLoss(names().loss);
  if (!loss.ok()) return FlagError("loss", names().loss, loss.status());
  functions.loss = *std::move(loss);

  auto spec = OptimizerSpec::Parse(names().optimizer);
  if (!spec.ok()) {
    return FlagError("optimizer", names().optimizer, spec.status());
  }
  functions.optimizer = [spec = *std::move(spec)] { return spec; };

  auto feed = BuiltinFeed(names().feed);
  if (!feed.ok()) return FlagError("feed", names().feed, feed.status());
  functions.feed = *std::move(feed);

  // The default depends on the loss.
  const std::string text = names().eval_metrics_fn.empty() ||
                                   names().eval_metrics_fn == "eval_metrics_fn"
                               ? DefaultMetrics(names().loss)
                               : names().eval_metrics_fn;
  auto metrics = BuiltinMetrics(text);
  if (!metrics.ok()) {
    return FlagError("eval_metrics_fn", text, metrics.status());
  }
  functions.metrics = *std::move(metrics);
  set_functions(std::move(functions));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> LoadTorchScript(
    const LoadOptions& options, const std::string& path) {
  auto model = std::make_unique<ScriptModel>(options, path);
  ELASTICDL_RETURN_IF_ERROR(model->Init());
  // Report a file that is not TorchScript now, not at the first step.
  ELASTICDL_RETURN_IF_ERROR(model->CreateNetwork({}).status());
  return model;
}

}  // namespace elasticdl::model
