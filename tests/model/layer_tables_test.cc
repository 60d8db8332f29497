// torch::nn::Embedding and EmbeddingBag with rows on parameter servers: the
// same values and gradients as with a weight of their own.
#include "layer_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "deferred_weight.h"

namespace elasticdl::model {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Ne;
using ::testing::SizeIs;
using torch::Tensor;
using torch::nn::Embedding;
using torch::nn::EmbeddingBag;
using torch::nn::EmbeddingBagOptions;
using torch::nn::EmbeddingOptions;

constexpr int64_t kRows = 40;
constexpr int64_t kDim = 3;

// Rows of one ordinary weight; keeps what it gave.
class WeightRows : public RowSource {
 public:
  explicit WeightRows(Tensor weight) : weight_(std::move(weight)) {}

  Tensor Rows(size_t table, const Tensor& ids) override {
    const torch::NoGradGuard no_grad;
    Tensor rows = weight_.index_select(0, ids);
    for (int64_t i = 0; i < ids.numel(); ++i) {
      asked.push_back(ids[i].item<int64_t>());
    }
    if (trains_) {
      rows.requires_grad_(true);
      given_.emplace_back(ids, rows);
    }
    return rows;
  }
  // What the gradient of the weight would be.
  Tensor Gradient() const {
    Tensor sum = torch::zeros_like(weight_);
    for (const auto& [ids, rows] : given_) {
      if (rows.grad().defined()) sum.index_add_(0, ids, rows.grad());
    }
    return sum;
  }
  // As the worker's: GradMode decides, and that is hidden by the guard above.
  void set_trains(bool trains) { trains_ = trains; }

  std::vector<int64_t> asked;

 private:
  const Tensor weight_;
  bool trains_ = true;
  std::vector<std::pair<Tensor, Tensor>> given_;
};

// The tables of one layer or network that `make` constructs.
template <typename Make>
auto Build(const Make& make, std::vector<ShardedTable>& tables,
           LayerTables& layers, int64_t limit = 1) {
  NetworkOptions options;
  options.sharded_embeddings = true;
  options.layer_limit = limit;
  auto made = [&] {
    const DeferScope scope(limit + 1);
    return make();
  }();
  layers = LayerTables(*made, options, tables);
  return made;
}

template <typename Make>
std::vector<ShardedTable> TablesOf(const Make& make, int64_t limit = 1) {
  std::vector<ShardedTable> tables;
  LayerTables layers;
  Build(make, tables, layers, limit);
  return tables;
}

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

// Calls `forward` on a layer with its rows elsewhere and on one with the same
// weight of its own.
template <typename Make, typename Forward>
void ExpectSame(const Make& make, const Forward& forward, int64_t padding) {
  std::vector<ShardedTable> tables;
  LayerTables layers;
  auto moved = Build(make, tables, layers);
  ASSERT_THAT(tables, SizeIs(1));
  auto plain = make();
  WeightRows rows(plain->weight.detach());
  layers.SetRowSource(&rows);

  const Tensor expected = forward(plain);
  const Tensor actual = forward(moved);
  ASSERT_EQ(actual.sizes(), expected.sizes());
  EXPECT_TRUE(torch::equal(actual, expected)) << actual << expected;
  const Tensor factors = torch::rand_like(expected);
  (expected * factors).sum().backward();
  (actual * factors).sum().backward();
  Tensor gradient = plain->weight.grad();
  if (gradient.is_sparse()) gradient = gradient.to_dense();
  EXPECT_TRUE(rows.Gradient().allclose(gradient, 1e-6, 1e-7))
      << rows.Gradient() << gradient;
  EXPECT_FALSE(moved->weight.grad().defined());
  EXPECT_THAT(rows.asked, Each(Ne(padding)));

  const torch::NoGradGuard no_grad;
  rows.set_trains(false);
  EXPECT_TRUE(torch::equal(forward(moved), forward(plain)));
}

TEST(LayerTablesTest, EmbeddingIsTheSameAsWithAWeight) {
  for (const int64_t padding : {-1, 0, 7, 39}) {
    for (const bool scaled : {false, true}) {
      SCOPED_TRACE(::testing::Message() << padding << " " << scaled);
      EmbeddingOptions options(kRows, kDim);
      options.scale_grad_by_freq(scaled).sparse(!scaled);
      // libtorch takes it from the end, too.
      if (padding >= 0) options.padding_idx(padding == 39 ? -1 : padding);
      const auto make = [&] { return Embedding(options); };
      const auto expect_same = [&](const Tensor& ids) {
        ExpectSame(
            make, [&](Embedding& layer) { return layer(ids); }, padding);
      };
      expect_same(torch::randint(kRows, {4, 5}, torch::kLong));
      expect_same(torch::tensor({{7, 0}, {39, 7}}));
      expect_same(torch::tensor({0, 0, 0}));
      // libtorch's own sparse gradient cannot do this one.
      if (scaled) expect_same(torch::tensor(7));
      expect_same(torch::randint(kRows, {60}, torch::kInt).view({3, 20}).t());
      expect_same(torch::zeros({0, 4}, torch::kLong));
    }
  }
}

TEST(LayerTablesTest, BagsAreTheSameAsWithAWeight) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  torch::manual_seed(seed);
  const std::vector<EmbeddingBagOptions> all = {
      EmbeddingBagOptions(kRows, kDim).mode(torch::kSum),
      EmbeddingBagOptions(kRows, kDim).mode(torch::kMean),
      EmbeddingBagOptions(kRows, kDim).mode(torch::kMax),
      EmbeddingBagOptions(kRows, kDim).mode(torch::kSum).padding_idx(3),
      EmbeddingBagOptions(kRows, kDim).mode(torch::kMean).padding_idx(-1),
      EmbeddingBagOptions(kRows, kDim).mode(torch::kMax).padding_idx(0),
      EmbeddingBagOptions(kRows, kDim).mode(torch::kSum).sparse(true),
      EmbeddingBagOptions(kRows, kDim)
          .mode(torch::kMean)
          .scale_grad_by_freq(true),
  };
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "case " << i);
    const auto& given = all[i].padding_idx();
    const int64_t padding =
        given.has_value() ? (*given + kRows) % kRows : int64_t{-1};
    const auto make = [&] { return EmbeddingBag(all[i]); };
    for (int round = 0; round < 10; ++round) {
      // With few different ids, so that some are there twice.
      const Tensor flat = torch::randint(kRows, {4}, torch::kLong)
                              .index_select(0, torch::randint(4, {9}));
      ExpectSame(
          make,
          [&](EmbeddingBag& layer) {
            return layer(flat.view({3, 3}));
          },
          padding);
      const Tensor offsets = torch::tensor({0, 4, 4, 5});
      ExpectSame(
          make, [&](EmbeddingBag& layer) { return layer(flat, offsets); },
          padding);
    }
  }
}

TEST(LayerTablesTest, BagsWithWeightsOfSamplesAndLastOffset) {
  const Tensor ids = torch::tensor({5, 1, 5, 3, 1});
  const auto make = [] {
    return EmbeddingBag(EmbeddingBagOptions(kRows, kDim).mode(torch::kSum));
  };
  // Their gradients are the same, too.
  std::vector<Tensor> weights;
  ExpectSame(
      make,
      [&](EmbeddingBag& layer) {
        weights.push_back(torch::arange(1, 6, torch::kFloat).requires_grad_());
        return layer(ids, torch::tensor({0, 2}), weights.back());
      },
      -1);
  ASSERT_GE(weights.size(), 2U);
  EXPECT_TRUE(weights[0].grad().allclose(weights[1].grad()));
  ExpectSame(
      [] {
        return EmbeddingBag(EmbeddingBagOptions(kRows, kDim)
                                .mode(torch::kSum)
                                .include_last_offset(true));
      },
      [&](EmbeddingBag& layer) {
        return layer(ids, torch::tensor({0, 2, 5}));
      },
      -1);
}

TEST(LayerTablesTest, InitialValuesAreThoseThatTheModelAskedFor) {
  const auto initializer =
      [](const std::function<void(Embedding&)>& initialize) {
        const auto tables = TablesOf([&] {
          Embedding layer(EmbeddingOptions(kRows, kDim).padding_idx(2));
          initialize(layer);
          return layer;
        });
        EXPECT_THAT(tables, SizeIs(1));
        return tables.empty() ? ShardedTable() : tables[0];
      };
  const ShardedTable usual = initializer([](Embedding& layer) {});
  EXPECT_EQ(usual.name, "weight");
  EXPECT_EQ(usual.dim, kDim);
  EXPECT_EQ(usual.input_dim, kRows);
  EXPECT_EQ(usual.initializer, "normal(1,0)");
  EXPECT_EQ(usual.zero_row, 2);
  const ShardedTable uniform = initializer([](Embedding& layer) {
    torch::nn::init::uniform_(layer->weight, -0.25, 0.5);
  });
  EXPECT_EQ(uniform.initializer, "uniform(-0.25,0.5)");
  // As in libtorch: it is not trained, but is no longer 0 either.
  EXPECT_EQ(uniform.zero_row, -1);
  EXPECT_EQ(initializer([](Embedding& layer) {
              layer->weight.data().normal_(1, 0.5);
              layer->weight.data()[2].zero_();
            }).initializer,
            "normal(0.5,1)");
  EXPECT_EQ(initializer([](Embedding& layer) {
              layer->weight.detach().fill_(0.75);
            }).initializer,
            "constant(0.75)");
  EXPECT_THAT(initializer([](Embedding& layer) {
                torch::nn::init::xavier_uniform_(layer->weight);
              }).initializer,
              HasSubstr("uniform(-0.37"));
}

TEST(LayerTablesTest, APaddingWithValuesIsUsedButNotTrained) {
  const auto make = [] {
    Embedding layer(EmbeddingOptions(kRows, kDim).padding_idx(2));
    torch::nn::init::uniform_(layer->weight);
    return layer;
  };
  std::vector<ShardedTable> tables;
  LayerTables layers;
  auto moved = Build(make, tables, layers);
  // Says where GradMode was off.
  class Modes : public RowSource {
   public:
    Tensor Rows(size_t table, const Tensor& ids) override {
      modes.emplace_back(ids.numel(), torch::GradMode::is_enabled());
      return torch::ones({ids.numel(), kDim})
          .requires_grad_(torch::GradMode::is_enabled());
    }
    std::vector<std::pair<int64_t, bool>> modes;
  } rows;
  layers.SetRowSource(&rows);
  const Tensor out = moved(torch::tensor({5, 2, 7}));
  EXPECT_TRUE(torch::equal(out, torch::ones({3, kDim})));
  EXPECT_THAT(rows.modes,
              ElementsAre(std::make_pair(2, true), std::make_pair(1, false)));
}

// A network with layers of all kinds.
struct NetImpl : torch::nn::Module {
  NetImpl() : fc(600, 600), users(1000, 4), words(10, 4), again(1000, 4) {
    register_module("fc", fc);
    register_module("users", users);
    register_module("words", words);
    again->weight = users->weight;
    register_module("again", again);
  }
  torch::nn::Linear fc;
  Embedding users;
  EmbeddingBag words;
  Embedding again;
};
TORCH_MODULE(Net);

TEST(LayerTablesTest, OnlyLargeLayersMove) {
  std::vector<ShardedTable> tables;
  LayerTables layers;
  torch::manual_seed(5);
  Net net = Build([] { return Net(); }, tables, layers, 15999);
  ASSERT_THAT(tables, SizeIs(1));
  EXPECT_EQ(tables[0].name, "users.weight");
  EXPECT_TRUE(layers.Has(net->users->weight));
  EXPECT_TRUE(layers.Has(net->again->weight));
  EXPECT_FALSE(layers.Has(net->fc->weight));
  // Nothing else is different: neither the linear layer, which is as large and
  // came first, nor its gradient.
  torch::manual_seed(5);
  const Net plain;
  EXPECT_TRUE(torch::equal(net->fc->weight, plain->fc->weight));
  EXPECT_TRUE(torch::equal(net->fc->bias, plain->fc->bias));
  net->fc(torch::ones({1, 600})).sum().backward();
  EXPECT_TRUE(torch::equal(net->fc->weight.grad(), torch::ones({600, 600})));
  EXPECT_EQ(net->words->weight.sum().dim(), 0);
  EXPECT_THAT(TablesOf([] { return Net(); }, 16000), IsEmpty());
}

TEST(LayerTablesTest, LayersMoveByName) {
  NetworkOptions options;
  options.sharded_embeddings = true;
  options.layers = {"words.weight", "other"};
  const Net net = [] {
    const DeferScope scope(1);
    return Net();
  }();
  std::vector<ShardedTable> tables(1);
  const LayerTables layers(*net, options, tables);
  ASSERT_THAT(tables, SizeIs(2));
  EXPECT_EQ(tables[1].name, "words.weight");
  EXPECT_EQ(DeferredWeight::Of(net->users->weight), nullptr);
  EXPECT_NEAR(net->users->weight.std().item<double>(), 1, 0.1);
}

TEST(LayerTablesTest, ValuesOfTheModelFileStay) {
  const auto stays = [](const std::function<void(Embedding&)>& set) {
    std::vector<ShardedTable> tables;
    LayerTables layers;
    Embedding layer = Build(
        [&] {
          Embedding made(kRows, kDim);
          const torch::NoGradGuard no_grad;
          set(made);
          return made;
        },
        tables, layers);
    EXPECT_THAT(tables, IsEmpty());
    EXPECT_EQ(DeferredWeight::Of(layer->weight), nullptr);
    EXPECT_TRUE(layer->weight.is_leaf());
    return layer->weight;
  };
  const Tensor values = torch::rand({kRows, kDim});
  EXPECT_TRUE(torch::equal(
      stays([&](Embedding& layer) { layer->weight.copy_(values); }), values));
  EXPECT_TRUE(torch::equal(stays([&](Embedding& layer) {
                             layer->weight.fill_(2).mul_(0.5);
                             layer->weight[1].fill_(3);
                           })[0],
                           torch::ones({kDim})));
  const Tensor two_rows = stays([](Embedding& layer) {
    const Tensor data = layer->weight.data();
    data[4].fill_(4);
    data[5].fill_(5);
    data[6] = torch::full({kDim}, 6);
  });
  EXPECT_EQ(two_rows[4][0].item<float>(), 4);
  EXPECT_EQ(two_rows[5][0].item<float>(), 5);
  EXPECT_EQ(two_rows[6][0].item<float>(), 6);
  EXPECT_NEAR(two_rows.slice(0, 7).std().item<double>(), 1, 0.3);
  stays([](Embedding& layer) { layer->weight[4].fill_(4); });
  stays([](Embedding& layer) { layer->weight.set_requires_grad(false); });
  stays([](Embedding& layer) { layer(torch::tensor({1})); });
  stays([](Embedding& layer) {
    layer = Embedding::from_pretrained(torch::randn({kRows, kDim}));
  });
}

TEST(LayerTablesTest, LargeMatricesAreOrdinaryOnes) {
  const DeferScope scope(1);
  Tensor matrix = torch::empty({300, 200});
  float* values = matrix.data_ptr<float>();
  for (int64_t i = 0; i < matrix.numel(); ++i) values[i] = 1;
  EXPECT_EQ(matrix.sum().item<float>(), 60000);
  matrix.resize_({301, 200});
  EXPECT_EQ(matrix[299][199].item<float>(), 1);
  const Tensor normal = torch::empty({300, 200}).normal_();
  EXPECT_NEAR((normal + 1).mean().item<double>(), 1, 0.1);
  EXPECT_EQ(normal.clone().size(0), 300);
  Tensor square = torch::empty({64, 64});
  torch::nn::init::orthogonal_(square);
  EXPECT_TRUE(square.mm(square.t()).allclose(torch::eye(64), 1e-4, 1e-4));
}

// Resident memory of this process.
int64_t ResidentBytes() {
  int64_t all = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * 4096;
}

TEST(LayerTablesTest, AHugeLayerTakesNoMemory) {
  const int64_t before = ResidentBytes();
  std::vector<ShardedTable> tables;
  LayerTables layers;
  // 16 TiB.
  Embedding layer = Build(
      [] {
        return Embedding(EmbeddingOptions(int64_t{1} << 36, 64).padding_idx(0));
      },
      tables, layers, 1 << 21);
  ASSERT_THAT(tables, SizeIs(1));
  EXPECT_EQ(tables[0].input_dim, int64_t{1} << 36);
  EXPECT_LT(ResidentBytes() - before, 64 << 20);
}

TEST(LayerTablesTest, WrongUsesAreNamed) {
  std::vector<ShardedTable> tables;
  LayerTables layers;
  Embedding layer =
      Build([] { return Embedding(kRows, kDim); }, tables, layers);
  EXPECT_THAT(ErrorOf([&] { layer(torch::tensor({1})); }),
              HasSubstr("no source"));
  WeightRows rows(torch::zeros({kRows, kDim}));
  layers.SetRowSource(&rows);
  EXPECT_THAT(ErrorOf([&] {
                layer(torch::tensor({int64_t{1}, kRows}));
              }),
              AllOf(HasSubstr("index out of range in self"), HasSubstr("40")));
  EXPECT_THAT(ErrorOf([&] {
                layer(torch::tensor({-3, 1}));
              }),
              AllOf(HasSubstr("index out of range in self"), HasSubstr("-3")));
  EXPECT_THAT(ErrorOf([&] { layer(torch::tensor({1.5})); }),
              HasSubstr("Long or Int"));
  EXPECT_THAT(rows.asked, IsEmpty());
  for (const std::string& error :
       {ErrorOf([&] {
          torch::linear(torch::ones({1, kDim}), layer->weight);
        }),
        ErrorOf([&] { layer->weight.norm(); }), ErrorOf([&] {
          torch::cat({layer->weight, layer->weight});
        })}) {
    EXPECT_THAT(error, AllOf(HasSubstr("'weight' lives on the parameter"),
                             HasSubstr("--embedding_layer_limit=0")));
  }
  EXPECT_THAT(ErrorOf([] {
                TablesOf([] {
                  return Embedding(EmbeddingOptions(kRows, kDim).max_norm(1));
                });
              }),
              HasSubstr("max_norm is not supported"));
}

}  // namespace
}  // namespace elasticdl::model
