// A model from a compiled model file.
#include "plugin_model.h"

#include <dlfcn.h>

#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "declared_names.h"
#include "deferred_weight.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/model/plugin.h"
#include "expression.h"
#include "late_values.h"
#include "layer_tables.h"
#include "model_base.h"
#include "named_once.h"
#include "resolve.h"
#include "source_scan.h"

namespace elasticdl::model {
namespace {

using plugin::Table;

// Smaller parameters are not worth the trouble.
constexpr int64_t kLeastLateBytes = 1 << 20;

// torch::nn::LinearImpl -> Linear.
std::string ShortType(absl::string_view type) {
  const size_t scope = type.rfind("::");
  if (scope != type.npos) type.remove_prefix(scope + 2);
  absl::ConsumeSuffix(&type, "Impl");
  return std::string(type);
}

class PluginNetwork : public Network {
 public:
  PluginNetwork(std::string path, const Table& table,
                std::unique_ptr<plugin::AnyNetwork> network,
                const NetworkOptions& options)
      : path_(std::move(path)),
        table_(table),
        network_(std::move(network)),
        tables_(network_->tables()) {
    const auto module = network_->module();
    layers_ = LayerTables(*module, options, tables_);
    NamedOnce named;
    for (const auto& item : module->named_parameters()) {
      if (layers_.Has(item.value())) continue;
      named.Add(item.key(), item.value());
    }
    parameters_ = named.Take();
    for (const auto& item : module->named_buffers()) {
      named.Add(item.key(), item.value());
    }
    buffers_ = named.Take();
    other_names_ = named.TakeOthers();
  }

  const Tensors& parameters() const override { return parameters_; }
  const Tensors& buffers() const override { return buffers_; }
  Tensors OtherNames() const override { return other_names_; }
  void Train() override { network_->module()->train(); }
  void Eval() override { network_->module()->eval(); }

  absl::StatusOr<Outputs> Forward(const Features& features) override {
    Outputs outputs;
    std::string error;
    if (table_.forward(network_.get(), &features, &outputs, &error)) {
      return outputs;
    }
    return FunctionError(path_, "forward", error);
  }

  const std::vector<ShardedTable>& tables() const override { return tables_; }
  void SetRowSource(RowSource* source) override {
    network_->SetRowSource(source);
    layers_.SetRowSource(source);
  }

  // What they still lack.
  void SetLateValues(LateValues values) { late_values_ = std::move(values); }
  int64_t LateBytes() const override { return late_values_.bytes(); }
  absl::Status MakeLateValues() override {
    return CallUser(path_, "initial values", [&] { late_values_.Make(); });
  }

  std::map<std::string, std::string> LayerTypes() const override {
    std::map<std::string, std::string> types;
    std::string error;
    // Names are for people: a layer that has none is left out.
    plugin::Guard(&error, [&] {
      for (const auto& item : network_->module()->named_modules()) {
        types.emplace(item.key(), ShortType(item.value()->name()));
      }
    });
    return types;
  }

  absl::StatusOr<std::string> Serialize() const override {
    std::ostringstream out;
    ELASTICDL_RETURN_IF_ERROR(
        CallUser(path_, "save", [&] { torch::save(network_->module(), out); }));
    return std::move(out).str();
  }

 private:
  const std::string path_;
  const Table& table_;
  const std::unique_ptr<plugin::AnyNetwork> network_;
  std::vector<ShardedTable> tables_;
  LayerTables layers_;
  Tensors parameters_;
  Tensors buffers_;
  Tensors other_names_;
  LateValues late_values_;
};

class PluginProcessor : public PredictionProcessor {
 public:
  PluginProcessor(std::string path, const Table& table,
                  std::unique_ptr<plugin::AnyProcessor> processor)
      : path_(std::move(path)),
        table_(table),
        processor_(std::move(processor)) {}

  absl::Status Process(const Outputs& predictions, int64_t worker_id) override {
    std::string error;
    if (table_.process(processor_.get(), &predictions, worker_id, &error)) {
      return absl::OkStatus();
    }
    return FunctionError(path_, "process", error);
  }
  bool uses_output_dir() const override {
    return table_.processor_takes_output_dir;
  }

 private:
  const std::string path_;
  const Table& table_;
  const std::unique_ptr<plugin::AnyProcessor> processor_;
};

// Throws the error of a table entry; ModelBase turns it into a status.
void ThrowUnless(bool ok, std::string& error) {
  if (!ok) throw std::runtime_error(error);
}

class PluginModel : public ModelBase {
 public:
  PluginModel(const LoadOptions& options, std::string source,
              std::string symbol, const Table& table, Params params)
      : ModelBase(std::move(source), options),
        symbol_(std::move(symbol)),
        table_(table),
        params_(std::move(params)),
        model_zoo_(options.model_zoo) {}

  // Uses functions from the table, or built-in ones.
  absl::Status Init();

  absl::StatusOr<std::unique_ptr<Network>> CreateNetwork(
      const NetworkOptions& options) override {
    if (options.late_values && !options.sharded_embeddings) {
      LateScope scope(kLeastLateBytes);
      ELASTICDL_ASSIGN_OR_RETURN(auto network, Construct(options));
      std::optional<LateValues> values;
      ELASTICDL_RETURN_IF_ERROR(CallUser(
          path(), symbol_, [&] { values = scope.Finish(*network->module()); }));
      if (values.has_value()) {
        ELASTICDL_ASSIGN_OR_RETURN(auto made,
                                   Wrap(std::move(network), options));
        made->SetLateValues(*std::move(values));
        return made;
      }
      LogInfo("'", symbol_,
              "' uses the memory of parameters itself: their "
              "initial values are made at once");
    }
    std::optional<DeferScope> scope;
    if (MovesLayers(options)) {
      // Of which name a weight will be is not known when it is made.
      scope.emplace(options.layers.empty() ? options.layer_limit + 1 : 1);
    }
    ELASTICDL_ASSIGN_OR_RETURN(auto network, Construct(options));
    scope.reset();
    return Wrap(std::move(network), options);
  }

  absl::StatusOr<std::unique_ptr<data::DataReader>> OpenReader(
      const std::string& origin, const data::ReaderParams& params) override {
    std::unique_ptr<data::DataReader> reader;
    if (table_.data_reader == nullptr) return reader;
    const Params reader_params(params);
    std::string error;
    if (!table_.data_reader(&reader_params, &origin, &reader, &error)) {
      return FunctionError(path(), names().custom_data_reader, error);
    }
    if (reader == nullptr) {
      return FunctionError(path(), names().custom_data_reader,
                           "it returned null");
    }
    return reader;
  }

  absl::StatusOr<std::unique_ptr<PredictionProcessor>>
  CreatePredictionProcessor(const std::string& output_dir) override {
    if (table_.create_processor == nullptr) {
      return std::unique_ptr<PredictionProcessor>();
    }
    if (table_.processor_takes_output_dir) {
      ELASTICDL_RETURN_IF_ERROR(MakeDirectories(output_dir));
    }
    std::unique_ptr<plugin::AnyProcessor> processor;
    std::string error;
    if (!table_.create_processor(&params_, &output_dir, &processor, &error)) {
      return FunctionError(path(), names().prediction_outputs_processor, error);
    }
    return std::make_unique<PluginProcessor>(path(), table_,
                                             std::move(processor));
  }

 private:
  // Calls custom_model.
  absl::StatusOr<std::unique_ptr<plugin::AnyNetwork>> Construct(
      const NetworkOptions& options) {
    std::unique_ptr<plugin::AnyNetwork> network;
    std::string error;
    torch::manual_seed(options.seed);
    if (!table_.create_network(&params_, options.sharded_embeddings, &network,
                               &error)) {
      return FunctionError(path(), symbol_, error);
    }
    return network;
  }
  absl::StatusOr<std::unique_ptr<PluginNetwork>> Wrap(
      std::unique_ptr<plugin::AnyNetwork> network,
      const NetworkOptions& options) {
    std::unique_ptr<PluginNetwork> out;
    ELASTICDL_RETURN_IF_ERROR(CallUser(path(), symbol_, [&] {
      out = std::make_unique<PluginNetwork>(path(), table_, std::move(network),
                                            options);
    }));
    return out;
  }
  absl::Status Missing(const std::string& symbol, const std::string& flag) {
    std::vector<SourceFile> sources;
    if (!absl::EndsWith(path(), ".so")) {
      sources = ReadWithIncludes(path(), {model_zoo_}, {})
                    .value_or(std::vector<SourceFile>());
    }
    return MissingFunction(path(), symbol, flag, sources);
  }
  // `builtin` if it is OK; otherwise the error for a missing function, with the
  // known built-in names.
  template <typename T>
  absl::Status TakeBuiltin(absl::StatusOr<T> builtin, const std::string& symbol,
                           const std::string& flag, T& out) {
    if (builtin.ok()) {
      out = *std::move(builtin);
      return absl::OkStatus();
    }
    if (IsExpression(symbol) || !absl::IsNotFound(builtin.status())) {
      return Annotate(absl::InvalidArgumentError(builtin.status().message()),
                      absl::StrCat("--", flag, "=", symbol));
    }
    return Missing(symbol, flag);
  }

  LossFunction TableLoss();
  FeedFunction TableFeed();
  absl::Status InitOptimizer(Functions& functions);
  absl::Status InitMetrics(Functions& functions);
  void InitCallbacks(Functions& functions);

  const std::string symbol_;
  const Table& table_;
  const Params params_;
  const std::string model_zoo_;
};

LossFunction PluginModel::TableLoss() {
  return [this](const torch::Tensor& labels, const Outputs& outputs) {
    torch::Tensor loss;
    std::string error;
    ThrowUnless(table_.loss(&params_, &labels, &outputs, &loss, &error), error);
    return loss;
  };
}

FeedFunction PluginModel::TableFeed() {
  return [this](const Records& records, Mode mode, const Metadata& metadata) {
    Batch batch;
    std::string error;
    ThrowUnless(table_.feed(&params_, &records, static_cast<int>(mode),
                            &metadata, &batch, &error),
                error);
    return batch;
  };
}

absl::Status PluginModel::InitOptimizer(Functions& functions) {
  if (table_.optimizer != nullptr) {
    functions.optimizer = [this] {
      OptimizerSpec spec;
      std::string error;
      ThrowUnless(table_.optimizer(&params_, &spec, &error), error);
      return spec;
    };
    return absl::OkStatus();
  }
  const std::string& text = names().optimizer;
  absl::StatusOr<OptimizerSpec> spec = OptimizerSpec::Parse(text);
  if (spec.ok()) {
    functions.optimizer = [spec = *std::move(spec)] { return spec; };
    return absl::OkStatus();
  }
  if (!IsExpression(text)) return Missing(text, "optimizer");
  return Annotate(spec.status(), absl::StrCat("--optimizer=", text));
}

absl::Status PluginModel::InitMetrics(Functions& functions) {
  if (table_.eval_metrics != nullptr) {
    functions.metrics = [this] {
      Metrics metrics;
      std::string error;
      ThrowUnless(table_.eval_metrics(&params_, &metrics, &error), error);
      return metrics;
    };
    return absl::OkStatus();
  }
  const std::string& text = names().eval_metrics_fn;
  absl::Status status = TakeBuiltin(BuiltinMetrics(text), text,
                                    "eval_metrics_fn", functions.metrics);
  if (status.ok() || IsExpression(text)) return status;
  // Only an evaluation needs metrics.
  functions.missing_metrics = std::string(status.message());
  return absl::OkStatus();
}

void PluginModel::InitCallbacks(Functions& functions) {
  if (table_.callbacks == nullptr) return;
  functions.callbacks = [this] {
    Callbacks callbacks;
    std::string error;
    ThrowUnless(table_.callbacks(&params_, &callbacks, &error), error);
    return callbacks;
  };
}

absl::Status PluginModel::Init() {
  if (table_.create_network == nullptr) return Missing(symbol_, "model_def");
  Functions functions;
  if (table_.loss != nullptr) {
    functions.loss = TableLoss();
  } else {
    ELASTICDL_RETURN_IF_ERROR(TakeBuiltin(
        BuiltinLoss(names().loss), names().loss, "loss", functions.loss));
  }
  if (table_.feed != nullptr) {
    functions.feed = TableFeed();
  } else {
    ELASTICDL_RETURN_IF_ERROR(TakeBuiltin(
        BuiltinFeed(names().feed), names().feed, "feed", functions.feed));
  }
  ELASTICDL_RETURN_IF_ERROR(InitOptimizer(functions));
  ELASTICDL_RETURN_IF_ERROR(InitMetrics(functions));
  InitCallbacks(functions);
  set_functions(std::move(functions));
  return absl::OkStatus();
}

absl::Status CheckTable(const std::string& library, const Table* table) {
  const auto wrong = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model library ", library, " ", what...,
        "; build it again with 'elasticdl zoo build' of this version"));
  };
  if (table == nullptr || table->magic != plugin::kMagic) {
    return wrong("is not an ElasticDL model library");
  }
  if (table->abi_version != plugin::kAbiVersion ||
      table->size != sizeof(Table)) {
    return wrong("has ABI version ", table->abi_version, ", this program has ",
                 plugin::kAbiVersion);
  }
  if (absl::string_view(table->torch_version) != TORCH_VERSION) {
    return wrong("was built with libtorch ", table->torch_version,
                 ", this program with ", TORCH_VERSION);
  }
  if (table->layout != plugin::kLayout) {
    return wrong("was built with other headers (elasticdl ",
                 table->elasticdl_version, ", this program is ",
                 ELASTICDL_VERSION, ")");
  }
  return absl::OkStatus();
}

// Never closed, because networks and functions from the library may live until
// the process ends.
absl::StatusOr<const Table*> OpenTable(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("loading model library ", library, ": ", dlerror()));
  }
  using Entry = const Table* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, plugin::kEntryName));
  if (entry == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model library ", library, " does not export ", plugin::kEntryName,
        "; build it from the model file with 'elasticdl zoo build'"));
  }
  const Table* table = entry();
  ELASTICDL_RETURN_IF_ERROR(CheckTable(library, table));
  return table;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> LoadPlugin(const LoadOptions& options,
                                                  const std::string& source,
                                                  const std::string& symbol,
                                                  const std::string& library) {
  auto params = ParseKeyValues(options.model_params);
  if (!params.ok()) return Annotate(params.status(), "--model_params");
  const std::string path =
      absl::StartsWith(library, "/") ? library : absl::StrCat("./", library);
  ELASTICDL_ASSIGN_OR_RETURN(const Table* table, OpenTable(path));
  auto model = std::make_unique<PluginModel>(options, source, symbol, *table,
                                             Params(*std::move(params)));
  ELASTICDL_RETURN_IF_ERROR(model->Init());
  return model;
}

}  // namespace elasticdl::model
