// How layers of a network reach tables whose rows live on parameter servers.
// Header-only, because it is compiled into the model's .so.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace elasticdl {

// A table whose rows live on parameter servers instead of in the network.
struct ShardedTable {
  // The name that its parameter has otherwise, e.g. "wide.embeddings".
  std::string name;
  // Width of a row.
  int64_t dim = 0;
  // Ids are in [0, input_dim). 0: any id.
  int64_t input_dim = 0;
  // Text for elasticdl::ps::Initializer::Parse.
  std::string initializer;
  // Id of a row that is 0 and is never asked for nor trained. -1: none.
  int64_t zero_row = -1;
};

// Where layers find their rows. Implemented by the worker. Runs on the thread
// that calls the network's Forward.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // Rows of `ids` (int64, one dimension, ascending, none twice, at least one)
  // of table number `table`: float32 (n, dim), a leaf that requires a gradient
  // while gradients are enabled. A layer that is used twice asks twice. Throws
  // when they cannot be had.
  virtual torch::Tensor Rows(size_t table, const torch::Tensor& ids) = 0;
};

namespace internal {

// Whether layers that this thread constructs keep their rows on parameter
// servers. A variable of the thread, because custom_model constructs the layers
// and its arguments are the user's.
inline bool& ShardsNewLayers() {
  // With less alignment, mold 1.10 makes some programs that cannot be started.
  alignas(8) thread_local bool shards = false;
  return shards;
}

// Sets it for as long as the scope lives.
class ShardingScope {
 public:
  explicit ShardingScope(bool shards)
      : before_(std::exchange(ShardsNewLayers(), shards)) {}
  ~ShardingScope() { ShardsNewLayers() = before_; }
  ShardingScope(const ShardingScope&) = delete;
  ShardingScope& operator=(const ShardingScope&) = delete;

 private:
  const bool before_;
};

}  // namespace internal

}  // namespace elasticdl
