// A compiled model whose embeddings live on parameter servers: it computes the
// same as with tables of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/model/internal/initial_values.h"
#include "elasticdl/model/internal/unique_ids.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/ps/initializer.h"

namespace elasticdl::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::Tensor;

constexpr int64_t kInputDim = 6;
constexpr int64_t kDim = 3;

Tensor Ids(const std::vector<int64_t>& ids) {
  return torch::tensor(ids, torch::kLong);
}

std::vector<int64_t> ToVector(const Tensor& ids) {
  return {ids.data_ptr<int64_t>(), ids.data_ptr<int64_t>() + ids.numel()};
}

// Row of an id: no two values are the same.
Tensor RowOf(int64_t id, int64_t dim) {
  return torch::arange(dim, torch::kFloat) * 0.125 +
         static_cast<double>(id % 1000) + 1;
}

// Has a row for every id, and keeps what it gave.
class FakeRows : public RowSource {
 public:
  struct Call {
    size_t table;
    std::vector<int64_t> ids;
    Tensor rows;
  };

  explicit FakeRows(std::vector<ShardedTable> tables)
      : tables_(std::move(tables)) {}

  Tensor Rows(size_t table, const Tensor& ids) override {
    if (!error.empty()) throw std::runtime_error(error);
    std::vector<Tensor> rows;
    for (const int64_t id : ToVector(ids)) {
      rows.push_back(RowOf(id, tables_.at(table).dim + extra_columns));
    }
    Tensor leaf = torch::stack(rows).detach().requires_grad_(
        torch::GradMode::is_enabled());
    calls.push_back({table, ToVector(ids), leaf});
    return leaf;
  }

  // The gradients of a table's rows, summed over all calls.
  std::map<int64_t, Tensor> Gradients(size_t table) const {
    std::map<int64_t, Tensor> sums;
    for (const Call& call : calls) {
      if (call.table != table) continue;
      for (size_t i = 0; i < call.ids.size(); ++i) {
        const Tensor part = call.rows.grad()[static_cast<int64_t>(i)];
        Tensor& sum = sums[call.ids[i]];
        sum = sum.defined() ? sum + part : part;
      }
    }
    return sums;
  }

  std::string error;
  int64_t extra_columns = 0;
  std::vector<Call> calls;

 private:
  const std::vector<ShardedTable> tables_;
};

class ShardingTest : public ::testing::Test {
 protected:
  std::unique_ptr<Model> LoadModel(const std::string& params) {
    LoadOptions options;
    options.model_zoo = TEST_ZOO;
    options.model_def = "sharded.custom_model";
    options.model_params = params;
    options.loss = "mse()";
    options.optimizer = "SGD(lr=0.1)";
    options.feed = "csv()";
    options.cache_dir = MODEL_CACHE;
    auto toolchain = ReadToolchain(MODEL_TOOLCHAIN);
    EXPECT_TRUE(toolchain.ok()) << toolchain.status();
    options.toolchain = *toolchain;
    auto model = Load(options);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  std::unique_ptr<Network> Create(const std::string& params, bool sharded) {
    // Networks may outlive their model.
    NetworkOptions options;
    options.seed = 1;
    options.sharded_embeddings = sharded;
    auto network = LoadModel(params)->CreateNetwork(options);
    EXPECT_TRUE(network.ok()) << network.status();
    return *std::move(network);
  }
  // A sharded network with rows from rows_.
  std::unique_ptr<Network> CreateSharded(const std::string& params) {
    auto network = Create(params, true);
    rows_ = std::make_unique<FakeRows>(network->tables());
    network->SetRowSource(rows_.get());
    return network;
  }
  // The same rows in a table of its own.
  std::unique_ptr<Network> CreatePlain(const std::string& params) {
    auto network = Create(params, false);
    const torch::NoGradGuard no_grad;
    Tensor table = network->parameters().at(0).second;
    for (int64_t id = 0; id < table.size(0); ++id) {
      table[id].copy_(RowOf(id, table.size(1)));
    }
    return network;
  }
  // Sum of all outputs with different weights, so that each element of an
  // output has a gradient of its own.
  static Tensor Loss(const Outputs& outputs) {
    Tensor loss = torch::zeros({});
    double offset = 0.5;
    for (const auto& [name, output] : outputs.items()) {
      const Tensor weights =
          torch::arange(output.numel(), torch::kFloat) * 0.25 + offset;
      loss = loss + (output.reshape({-1}) * weights).sum();
      offset += 0.1;
    }
    return loss;
  }
  // Outputs and gradients of both kinds of networks are the same.
  void ExpectSame(const std::string& params, const Features& features) {
    SCOPED_TRACE(params);
    const std::string all = absl::StrCat("input_dim=", kInputDim, params);
    const auto sharded = CreateSharded(all);
    const auto plain = CreatePlain(all);
    const auto actual = sharded->Forward(features);
    ASSERT_TRUE(actual.ok()) << actual.status();
    const auto expected = plain->Forward(features);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (const auto& [name, output] : expected->items()) {
      ASSERT_EQ(actual->at(name).sizes(), output.sizes());
      EXPECT_TRUE(actual->at(name).allclose(output)) << name << "\n"
                                                     << actual->at(name) << "\n"
                                                     << output;
    }
    Loss(*actual).backward();
    Loss(*expected).backward();
    const Tensor dense = plain->parameters()[0].second.grad();
    const auto gradients = rows_->Gradients(0);
    for (int64_t id = 0; id < kInputDim; ++id) {
      const auto found = gradients.find(id);
      const Tensor gradient =
          found == gradients.end() ? torch::zeros({kDim}) : found->second;
      EXPECT_TRUE(gradient.allclose(dense[id])) << "id " << id << "\n"
                                                << gradient << "\n"
                                                << dense[id];
    }
    for (const FakeRows::Call& call : rows_->calls) {
      EXPECT_GE(call.ids.front(), 0);
    }
  }
  // Why Forward of a sharded network fails.
  std::string ForwardError(Network& network, const Features& features) {
    return std::string(network.Forward(features).status().message());
  }

  std::unique_ptr<FakeRows> rows_;
};

TEST_F(ShardingTest, DenseIdsGiveTheSameAsATableOfTheNetwork) {
  const Tensor ids = torch::tensor({{{1, 2}, {5, 2}}, {{0, 0}, {2, 1}}});
  ExpectSame("", {{"ids", ids}});
  EXPECT_THAT(rows_->calls, SizeIs(1));
  EXPECT_THAT(rows_->calls[0].ids, ElementsAre(0, 1, 2, 5));
  const Tensor padded = torch::tensor({{1, 0, -1}, {-7, 5, 1}});
  ExpectSame("", {{"ids", padded}});
  EXPECT_THAT(rows_->calls[0].ids, ElementsAre(0, 1, 5));
  ExpectSame(";mask_zero=true", {{"ids", padded}});
  EXPECT_THAT(rows_->calls[0].ids, ElementsAre(1, 5));
  ExpectSame("", {{"ids", torch::tensor(3)}});
  ExpectSame("", {{"ids", ids.to(torch::kInt).transpose(0, 2)}});
}

TEST_F(ShardingTest, CombinersGiveTheSameAsATableOfTheNetwork) {
  const Tensor dense = torch::tensor({{1, 3, 3, -1}, {0, -1, 2, 0}});
  const Tensor all_kept = torch::tensor({{1, 3, 3}, {4, 2, 1}});
  const Features sparse{{"ids", Ids({1, 3, 0, 2, -1, 4, 3, 0})},
                        {"offsets", Ids({0, 2, 2, 6, 8})}};
  for (const char* combiner : {"sum", "mean", "sqrtn"}) {
    for (const char* mask_zero : {"false", "true"}) {
      const std::string params =
          absl::StrCat(";combiner=", combiner, ";mask_zero=", mask_zero);
      ExpectSame(params, {{"ids", dense}});
      ExpectSame(params, {{"ids", all_kept}});
      ExpectSame(params, sparse);
    }
  }
}

TEST_F(ShardingTest, NothingIsAskedForWithoutIds) {
  for (const Tensor& ids :
       {torch::empty({0, 4}, torch::kLong), torch::empty({2, 0}, torch::kLong),
        torch::full({2, 3}, -1, torch::kLong)}) {
    ExpectSame("", {{"ids", ids}});
    EXPECT_THAT(rows_->calls, IsEmpty());
    ExpectSame(";combiner=mean", {{"ids", ids}});
    EXPECT_THAT(rows_->calls, IsEmpty());
  }
  ExpectSame(";combiner=sum", {{"ids", Ids({})}, {"offsets", Ids({0, 0, 0})}});
  ExpectSame(";combiner=sqrtn;mask_zero=true",
             {{"ids", Ids({0, -3})}, {"offsets", Ids({0, 1})}});
  EXPECT_THAT(rows_->calls, IsEmpty());
}

TEST_F(ShardingTest, ALayerMayBeUsedTwice) {
  ExpectSame("", {{"ids", Ids({1, 2, 2})}, {"ids_too", Ids({2, 5, -1, 2})}});
  ASSERT_THAT(rows_->calls, SizeIs(2));
  EXPECT_THAT(rows_->calls[0].ids, ElementsAre(1, 2));
  EXPECT_THAT(rows_->calls[1].ids, ElementsAre(2, 5));
}

TEST_F(ShardingTest, IdsKeepTheirWholeRange) {
  const auto network = CreateSharded("");
  const auto outputs =
      network->Forward(Features{{"ids", Ids({INT64_MAX, 0, int64_t{1} << 62,
                                             INT64_MIN, 65536, INT64_MAX})}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_THAT(rows_->calls, SizeIs(1));
  EXPECT_THAT(rows_->calls[0].ids,
              ElementsAre(0, 65536, int64_t{1} << 62, INT64_MAX));
  EXPECT_TRUE(outputs->at("ids")[0].equal(RowOf(INT64_MAX, kDim)));
  EXPECT_TRUE(outputs->at("ids")[3].equal(torch::zeros({kDim})));
}

TEST_F(ShardingTest, EachLayerIsATableUnderItsFirstName) {
  const auto network = CreateSharded("many=true");
  const auto& tables = network->tables();
  ASSERT_THAT(tables, SizeIs(2));
  EXPECT_EQ(tables[0].name, "wide.embeddings");
  EXPECT_EQ(tables[0].dim, 2);
  EXPECT_EQ(tables[0].initializer, "uniform(0.05)");
  EXPECT_EQ(tables[1].name, "block.deep.embeddings");
  EXPECT_EQ(tables[1].dim, 3);
  EXPECT_EQ(tables[1].initializer, "zeros");
  // Only the dense parameters are left, and each table has the name of one that
  // is missing.
  ASSERT_THAT(network->parameters(), SizeIs(2));
  EXPECT_EQ(network->parameters()[0].first, "fc.weight");
  const auto plain = Create("many=true", false);
  EXPECT_THAT(plain->tables(), IsEmpty());
  EXPECT_EQ(plain->parameters().at(0).first, tables[0].name);
  EXPECT_EQ(plain->parameters().at(1).first, tables[1].name);

  const auto outputs = network->Forward(Ids({7, 9, 7}));
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(outputs->tensor().sizes(), (std::vector<int64_t>{3, 5}));
  outputs->tensor().sum().backward();
  // Through both of its names, twice each.
  EXPECT_TRUE(
      rows_->Gradients(0).at(7).equal(torch::full({2}, 4, torch::kFloat)));
  EXPECT_TRUE(rows_->Gradients(1).at(9).allclose(
      network->parameters()[0].second.detach()[0]));
  EXPECT_TRUE(network->Serialize().ok());
}

TEST_F(ShardingTest, EvaluationNeedsNoGradients) {
  const auto network = CreateSharded("");
  const torch::NoGradGuard no_grad;
  for (const Tensor& ids : {Ids({3, 1}), Ids({-1})}) {
    const auto outputs = network->Forward(Features{{"ids", ids}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_FALSE(outputs->at("ids").requires_grad());
  }
  EXPECT_FALSE(rows_->calls.at(0).rows.requires_grad());
}

TEST_F(ShardingTest, TheSourceCanBeReplaced) {
  const auto network = CreateSharded("");
  FakeRows other(network->tables());
  network->SetRowSource(&other);
  ASSERT_TRUE(network->Forward(Features{{"ids", Ids({3})}}).ok());
  EXPECT_THAT(rows_->calls, IsEmpty());
  EXPECT_THAT(other.calls, SizeIs(1));
}

TEST_F(ShardingTest, ErrorsNameTheTable) {
  const Features features{{"ids", Ids({1, kInputDim})}};
  const auto none = Create("", true);
  EXPECT_THAT(ForwardError(*none, features),
              HasSubstr("'table.embeddings': there is no source for its rows"));

  const auto network = CreateSharded(absl::StrCat("input_dim=", kInputDim));
  EXPECT_THAT(
      ForwardError(*network, features),
      HasSubstr("'table.embeddings': id 6 is not less than input_dim, 6"));
  EXPECT_THAT(rows_->calls, IsEmpty());
  const Features good{{"ids", Ids({1, 1})}};
  rows_->error = "server 3 is gone";
  EXPECT_THAT(ForwardError(*network, good), HasSubstr("server 3 is gone"));
  rows_->error = "";
  rows_->extra_columns = 1;
  EXPECT_THAT(ForwardError(*network, good),
              HasSubstr("'table.embeddings': wrong rows for 1 ids"));

  const auto loose = CreateSharded("registered=false");
  EXPECT_THAT(loose->tables(), IsEmpty());
  EXPECT_THAT(ForwardError(*loose, good), HasSubstr("use register_module"));
}

TEST_F(ShardingTest, AnUnknownInitializerFailsWithOrWithoutServers) {
  for (const bool sharded : {false, true}) {
    const auto status =
        LoadModel("initializer=unifrom")->CreateNetwork({1, sharded}).status();
    EXPECT_THAT(status.message(),
                HasSubstr("initializer 'unifrom' is not known: zeros, ones, "
                          "constant(VALUE), uniform, normal"));
  }
  // The failure has not left its thread in the other mode.
  EXPECT_THAT(Create("", false)->parameters(), SizeIs(1));
}

TEST(InitialValuesTest, ServersReadTheSame) {
  for (const std::string text :
       {"zeros", "ones", "constant(0.3)", "constant(value=-2)", "uniform",
        "uniform(0.1)", "uniform(-1, 2)", "RandomUniform(minval=-1)", "normal",
        "normal(0.02)", "RandomNormal(mean=1)", "normal(0.1; 2)",
        "Truncated_Normal(1e-3)", "truncated_normal", "glorot_uniform",
        "GlorotNormal", "he_uniform", "he_normal()"}) {
    const std::string ours = internal::InitialValues(text, 0.05).ToString();
    const auto actual = ps::Initializer::Parse(ours);
    ASSERT_TRUE(actual.ok()) << actual.status();
    const auto expected = ps::Initializer::Parse(text);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(actual->ToString(), expected->ToString()) << text << ", " << ours;
  }
}

TEST(InitialValuesTest, TextsAreShort) {
  const auto text = [](const char* text, double scale) {
    return internal::InitialValues(text, scale).ToString();
  };
  EXPECT_EQ(text("uniform", 0.05), "uniform(0.05)");
  EXPECT_EQ(text("normal", 0.1), "normal(0.1)");
  EXPECT_EQ(text("truncated_normal", 1.0 / 3),
            "truncated_normal(0.3333333333333333)");
  EXPECT_EQ(text("uniform(0,1)", 0.05), "uniform(0,1)");
  EXPECT_EQ(text("zeros", 0.05), "zeros");
}

TEST(InitialValuesTest, RejectsWhatServersReject) {
  for (const std::string text :
       {"unifrom", "uniform(", "uniform(x)", "uniform(1,2,3)", "zeros(1)",
        "constant", "constant()", "normal(scale=1)", "constant(1,2)",
        "uniform(nan)"}) {
    EXPECT_THROW(internal::InitialValues(text, 0.05), c10::Error) << text;
    EXPECT_FALSE(ps::Initializer::Parse(text).ok()) << text;
  }
  EXPECT_THROW(internal::InitialValues("", 0.05), c10::Error);
  EXPECT_THROW(internal::InitialValues("uniform", NAN), c10::Error);
  EXPECT_THROW(internal::InitialValues("normal(-1)", 0.05), c10::Error);
}

// 40,000 values: the deviation of the mean is 0.005 times theirs.
TEST(InitialValuesTest, LocalTablesHaveTheSameDistributions) {
  torch::manual_seed(1);
  const struct {
    const char* text;
    double mean;
    double deviation;
    double largest;
  } cases[] = {
      {"constant(3)", 3, 0, 3},
      {"uniform(0,1)", 0.5, std::sqrt(1 / 12.0), 1},
      {"normal(2, 1)", 1, 2, 100},
      {"truncated_normal(1)", 0, 0.87962566, 2},
      {"glorot_uniform", 0, std::sqrt(1 / 16.0), std::sqrt(3 / 16.0)},
      {"he_normal", 0, std::sqrt(2 / 16.0), 2.0 * std::sqrt(2 / 16.0) / 0.8796},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.text);
    const Tensor values =
        internal::InitialValues(one.text, 0.05).Make(2500, 16);
    EXPECT_EQ(values.sizes(), (std::vector<int64_t>{2500, 16}));
    EXPECT_NEAR(values.mean().item<double>(), one.mean, 0.05);
    EXPECT_NEAR(values.std().item<double>(), one.deviation,
                0.02 * one.deviation);
    EXPECT_LE(values.abs().max().item<double>(), one.largest * 1.0001);
  }
}

TEST(UniqueIdsTest, IsWhatTorchComputes) {
  torch::manual_seed(2);
  for (const int64_t range : {int64_t{1}, int64_t{50}, INT64_MAX}) {
    const Tensor ids = torch::randint(range, {40, 25}, torch::kLong).t();
    const auto unique = internal::Unique(ids);
    const auto [expected, positions] =
        torch::_unique(ids, /*sorted=*/true, /*return_inverse=*/true);
    EXPECT_TRUE(unique.ids.equal(expected));
    EXPECT_TRUE(unique.positions.equal(positions));
  }
}

}  // namespace
}  // namespace elasticdl::model
