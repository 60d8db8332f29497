// Embeddings wherever a network can have them, for sharding_test.
#include <elasticdl/model.h>

struct Net : torch::nn::Module {
  virtual elasticdl::Outputs forward(const elasticdl::Features& features) = 0;
};

// One table, used once for each feature that starts with "ids". "offsets" make
// the ids sparse.
struct One : Net {
  explicit One(const elasticdl::Params& params)
      : table(elasticdl::EmbeddingOptions(3)
                  .input_dim(params.Get("input_dim", int64_t{0}))
                  .initializer(params.Get("initializer", std::string("normal")))
                  .combiner(params.Get("combiner", std::string()))
                  .mask_zero(params.Get("mask_zero", false))) {
    if (params.Get("registered", true)) register_module("table", table);
  }
  elasticdl::Outputs forward(const elasticdl::Features& features) override {
    elasticdl::Outputs outputs;
    for (const auto& [name, ids] : features.items()) {
      if (name.rfind("ids", 0) != 0) continue;
      if (features.Has("offsets")) {
        outputs.Add(name,
                    table(elasticdl::SparseIds{ids, features["offsets"]}));
      } else {
        outputs.Add(name, table(ids));
      }
    }
    return outputs;
  }
  elasticdl::Embedding table;
};

struct Block : torch::nn::Module {
  explicit Block(elasticdl::Embedding outer)
      : deep(elasticdl::EmbeddingOptions(3).initializer("zeros")),
        again(std::move(outer)) {
    register_module("deep", deep);
    register_module("again", again);
  }
  elasticdl::Embedding deep;
  elasticdl::Embedding again;
};

// Two tables, one of which has two names, and dense parameters.
struct Many : Net {
  Many() : wide(2), block(std::make_shared<Block>(wide)), fc(3, 1) {
    register_module("wide", wide);
    register_module("block", block);
    register_module("fc", fc);
  }
  elasticdl::Outputs forward(const elasticdl::Features& ids) override {
    return torch::cat({wide(ids.tensor()), fc(block->deep(ids.tensor())),
                       block->again(ids.tensor())},
                      -1);
  }
  elasticdl::Embedding wide;
  std::shared_ptr<Block> block;
  torch::nn::Linear fc;
};

std::shared_ptr<Net> custom_model(const elasticdl::Params& params) {
  if (params.Get("many", false)) return std::make_shared<Many>();
  return std::make_shared<One>(params);
}
