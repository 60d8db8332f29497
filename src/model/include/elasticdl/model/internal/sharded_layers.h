// The layers of a network whose rows live on parameter servers.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/model/embedding.h"
#include "elasticdl/model/sharding.h"

namespace elasticdl::internal {

// Compiled into the model's .so, because that is where the type of the layers
// is certain to be the one that the model used. Thread-compatible.
class ShardedLayers {
 public:
  ShardedLayers() = default;
  // In the order of the modules. A layer with two names is one table and has
  // the first.
  explicit ShardedLayers(const torch::nn::Module& network) {
    for (const auto& module : network.named_modules()) {
      auto layer = std::dynamic_pointer_cast<EmbeddingImpl>(module.value());
      if (layer == nullptr || !layer->sharded()) continue;
      if (std::count(layers_.begin(), layers_.end(), layer) > 0) continue;
      const std::string prefix = module.key().empty() ? "" : module.key() + ".";
      tables_.push_back(layer->Attach(prefix + "embeddings", tables_.size()));
      layers_.push_back(std::move(layer));
    }
  }

  const std::vector<ShardedTable>& tables() const { return tables_; }
  void SetRowSource(RowSource* source) {
    for (const auto& layer : layers_) layer->SetRowSource(source);
  }

 private:
  std::vector<ShardedTable> tables_;
  // Shared with the modules that have them.
  std::vector<std::shared_ptr<EmbeddingImpl>> layers_;
};

}  // namespace elasticdl::internal
