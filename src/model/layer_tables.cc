#include "layer_tables.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "deferred_weight.h"
#include "elasticdl/common/log.h"

namespace elasticdl::model {

struct LayerTables::Layer {
  // Of the weight.
  std::string name;
  torch::Tensor weight;
  // -1: none.
  int64_t padding = -1;
  bool has_max_norm = false;
};

namespace {

template <typename Impl>
bool Read(const torch::nn::Module& module, torch::Tensor& weight,
          int64_t& padding, bool& has_max_norm) {
  const auto* layer = dynamic_cast<const Impl*>(&module);
  if (layer == nullptr || !layer->weight.defined()) return false;
  weight = layer->weight;
  const auto& given = layer->options.padding_idx();
  if (given.has_value()) {
    padding = *given < 0 ? *given + weight.size(0) : *given;
  }
  has_max_norm = layer->options.max_norm().has_value();
  return true;
}

int64_t Megabytes(const torch::Tensor& weight) {
  return static_cast<int64_t>(weight.nbytes() >> 20);
}

}  // namespace

bool MovesLayers(const NetworkOptions& options) {
  return options.sharded_embeddings &&
         (options.layer_limit > 0 || !options.layers.empty());
}

LayerTables::LayerTables(const torch::nn::Module& network,
                         const NetworkOptions& options,
                         std::vector<ShardedTable>& tables) {
  if (!MovesLayers(options)) return;
  for (const auto& module : network.named_modules()) {
    Layer layer;
    layer.name = (module.key().empty() ? "" : module.key() + ".") + "weight";
    const torch::nn::Module& value = *module.value();
    const bool found =
        Read<torch::nn::EmbeddingImpl>(value, layer.weight, layer.padding,
                                       layer.has_max_norm) ||
        Read<torch::nn::EmbeddingBagImpl>(value, layer.weight, layer.padding,
                                          layer.has_max_norm);
    if (!found || Has(layer.weight) || !Moves(layer, options)) continue;
    Add(layer, tables);
    if (options.layer_limit > 0) {
      LogInfo("the rows of '", layer.name, "' (", Megabytes(layer.weight),
              " MB) live on the parameter servers");
    }
  }
  const auto make = [this](const auto& named) {
    for (const auto& item : named) {
      if (!Has(item.value())) DeferredWeight::Make(item.value());
    }
  };
  make(network.named_parameters());
  make(network.named_buffers());
}

bool LayerTables::Moves(const Layer& layer,
                        const NetworkOptions& options) const {
  const bool large =
      options.layer_limit > 0 &&
      static_cast<int64_t>(layer.weight.nbytes()) > options.layer_limit;
  // Values that are not trained are the same on every worker.
  if (!layer.weight.requires_grad() ||
      (!large && options.layers.count(layer.name) == 0)) {
    return false;
  }
  TORCH_CHECK(!layer.has_max_norm, "'", layer.name,
              "' is large enough to live on the parameter servers, where "
              "max_norm is not supported; --embedding_layer_limit=0 keeps it "
              "on the workers");
  const DeferredWeight* weight = DeferredWeight::Of(layer.weight);
  const bool as_made =
      weight != nullptr &&
      (!weight->filled_row().has_value() ||
       *weight->filled_row() == std::make_pair(layer.padding, 0.0));
  if (!as_made) {
    LogWarning("'", layer.name, "' (", Megabytes(layer.weight),
               " MB) stays on every worker: the model file sets its values by "
               "other means than normal_, uniform_ or constants");
  }
  return as_made;
}

void LayerTables::Add(const Layer& layer, std::vector<ShardedTable>& tables) {
  DeferredWeight& weight = *DeferredWeight::Of(layer.weight);
  ShardedTable table;
  table.name = layer.name;
  table.dim = weight.dim();
  table.input_dim = weight.rows();
  table.initializer = weight.initializer();
  if (weight.filled_row().has_value()) table.zero_row = layer.padding;
  weight.Attach(table, tables.size());
  tables.push_back(std::move(table));
  weights_.push_back(layer.weight);
}

bool LayerTables::Has(const torch::Tensor& parameter) const {
  return std::any_of(
      weights_.begin(), weights_.end(),
      [&](const torch::Tensor& weight) { return weight.is_same(parameter); });
}

void LayerTables::SetRowSource(RowSource* source) {
  for (const torch::Tensor& weight : weights_) {
    DeferredWeight::Of(weight)->SetRowSource(source);
  }
}

}  // namespace elasticdl::model
