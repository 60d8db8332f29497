// Which torch::nn::Embedding and EmbeddingBag layers of a network have their
// rows on parameter servers.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "elasticdl/model/loader.h"
#include "elasticdl/model/sharding.h"

namespace elasticdl::model {

// Whether NetworkOptions ask for it at all.
bool MovesLayers(const NetworkOptions& options);

// Thread-compatible.
class LayerTables {
 public:
  LayerTables() = default;
  // Of a network that was made in a DeferScope if MovesLayers. Appends its
  // layers to `tables`, in the order of the modules; a weight that two layers
  // share is one table and has the first name. All other weights are ordinary
  // tensors afterwards. Throws for a layer that cannot be stored on servers.
  LayerTables(const torch::nn::Module& network, const NetworkOptions& options,
              std::vector<ShardedTable>& tables);

  // Whether this parameter is one of the tables.
  bool Has(const torch::Tensor& parameter) const;
  void SetRowSource(RowSource* source);

 private:
  // A layer, of whichever class.
  struct Layer;
  bool Moves(const Layer& layer, const NetworkOptions& options) const;
  void Add(const Layer& layer, std::vector<ShardedTable>& tables);

  std::vector<torch::Tensor> weights_;
};

}  // namespace elasticdl::model
