// Compiled model files: each kind is compiled, loaded and called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elasticdl/common/file.h"
#include "elasticdl/model/loader.h"
#include "support/temp_dir.h"

namespace elasticdl::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::Tensor;

LoadOptions OptionsFor(const std::string& model_def) {
  LoadOptions options;
  options.model_zoo = TEST_ZOO;
  options.model_def = model_def;
  options.cache_dir = MODEL_CACHE;
  auto toolchain = ReadToolchain(MODEL_TOOLCHAIN);
  EXPECT_TRUE(toolchain.ok()) << toolchain.status();
  options.toolchain = *toolchain;
  return options;
}

LoadOptions MinimalOptions(const std::string& symbol) {
  LoadOptions options = OptionsFor("minimal." + symbol);
  options.loss = "my_loss";
  options.optimizer = "Adam(lr=0.01)";
  return options;
}

std::unique_ptr<Model> MustLoad(const LoadOptions& options) {
  auto model = Load(options);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

const std::vector<absl::string_view>& Records() {
  static const auto& records =
      *new std::vector<absl::string_view>{"1 0 0", "0 1 1", "2 0 0"};
  return records;
}

TEST(PluginTest, FullModelTrains) {
  LoadOptions options = OptionsFor("full.custom_model");
  options.model_params = "hidden=5";
  auto model = MustLoad(options);
  ASSERT_NE(model, nullptr);
  auto network = model->CreateNetwork({7});
  ASSERT_TRUE(network.ok()) << network.status();
  const auto& parameters = (*network)->parameters();
  ASSERT_EQ(parameters.size(), 4u);
  EXPECT_EQ(parameters[0].first, "first.weight");
  EXPECT_EQ(parameters[0].second.sizes(), (std::vector<int64_t>{5, 2}));
  ASSERT_EQ((*network)->buffers().size(), 1u);

  const auto batch = model->Feed(Records(), Mode::kTraining, {});
  ASSERT_TRUE(batch.ok()) << batch.status();
  const auto outputs = (*network)->Forward(batch->features);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const auto loss = model->Loss(batch->labels, *outputs);
  ASSERT_TRUE(loss.ok()) << loss.status();
  loss->backward();
  EXPECT_TRUE(parameters[0].second.grad().defined());
  EXPECT_EQ(model->Optimizer()->args.at("lr"), 0.25);
  EXPECT_FALSE(model->Feed(Records(), Mode::kPrediction, {})->labels.defined());
}

TEST(PluginTest, SeedDecidesTheInitialValues) {
  auto model = MustLoad(OptionsFor("full.custom_model"));
  ASSERT_NE(model, nullptr);
  const auto values = [&](uint64_t seed) {
    return (*model->CreateNetwork({seed}))->parameters()[0].second;
  };
  EXPECT_TRUE(values(3).equal(values(3)));
  EXPECT_FALSE(values(3).equal(values(4)));
}

TEST(PluginTest, InitialValuesMayBeLate) {
  LoadOptions options = OptionsFor("full.custom_model");
  options.model_params = "hidden=200000";
  auto model = MustLoad(options);
  ASSERT_NE(model, nullptr);
  const auto expected = *model->CreateNetwork({7});
  const torch::Tensor after = torch::rand({3});
  EXPECT_EQ(expected->LateBytes(), 0);
  NetworkOptions late{7};
  late.late_values = true;
  const auto network = *model->CreateNetwork(late);
  EXPECT_TRUE(torch::rand({3}).equal(after));
  // Both weights; biases are small.
  EXPECT_EQ(network->LateBytes(), 2 * 400000 * 4);
  const auto& parameters = network->parameters();
  ASSERT_EQ(parameters.size(), 4u);
  EXPECT_EQ(parameters[0].second.abs().sum().item<double>(), 0);
  ASSERT_TRUE(network->MakeLateValues().ok());
  EXPECT_EQ(network->LateBytes(), 0);
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(parameters[i].second.equal(expected->parameters()[i].second))
        << parameters[i].first;
  }
  ASSERT_TRUE(network->MakeLateValues().ok());
}

TEST(PluginTest, MetricsCallbacksReaderAndProcessor) {
  auto model = MustLoad(OptionsFor("full.custom_model"));
  ASSERT_NE(model, nullptr);
  auto metrics = model->CreateMetrics();
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_TRUE(metrics
                  ->Update(torch::tensor({0, 1}),
                           torch::tensor({{3.0, 1.0}, {2.0, 1.0}}))
                  .ok());
  const auto sums = metrics->Take();
  EXPECT_THAT(sums[0].sums, ElementsAre(1, 2));
  EXPECT_THAT(sums[1].sums, ElementsAre(3, 2));

  auto callbacks = model->CreateCallbacks();
  ASSERT_TRUE(callbacks.ok()) << callbacks.status();
  ASSERT_TRUE(callbacks->OnTrainBatchBegin(4).ok());
  EXPECT_EQ(callbacks->learning_rate(), 0.25);
  EXPECT_FALSE(callbacks->stop_reason());
  ASSERT_TRUE(callbacks->OnTrainBatchBegin(10).ok());
  EXPECT_TRUE(callbacks->stop_reason());
  EXPECT_THAT(callbacks->OnTrainEnd().message(), HasSubstr("at the end"));

  auto reader = model->OpenReader("here", {{"suffix", "!"}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*(*reader)->CreateShards())[0].name, "here!");

  elasticdl::test::TempDir dir;
  auto processor = model->CreatePredictionProcessor(dir.Path("made"));
  ASSERT_TRUE(processor.ok() && *processor != nullptr) << processor.status();
  EXPECT_TRUE((*processor)->uses_output_dir());
  EXPECT_TRUE((*processor)->Process(torch::ones({2, 2}), 0).ok());
  EXPECT_EQ(*ReadFile(dir.Path("made/rows")), "2\n");
  EXPECT_THAT((*processor)->Process(torch::ones({2, 2}), -1).message(),
              HasSubstr("negative worker"));
}

TEST(PluginTest, ExportLoadsBack) {
  auto model = MustLoad(OptionsFor("full.custom_model"));
  ASSERT_NE(model, nullptr);
  auto network = model->CreateNetwork({1});
  elasticdl::test::TempDir dir;
  ASSERT_TRUE(ExportTo(dir.Path("out"), **network).ok());
  torch::serialize::InputArchive archive;
  archive.load_from(dir.Path("out/model.pt"));
  torch::serialize::InputArchive first;
  archive.read("first", first);
  Tensor weight;
  first.read("weight", weight);
  EXPECT_TRUE(weight.equal((*network)->parameters()[0].second));
  EXPECT_TRUE(FileExists(dir.Path("out/state_dict.pt")));
}

TEST(PluginTest, ThrowingFeedNamesFunctionAndRecord) {
  auto model = MustLoad(OptionsFor("full.custom_model"));
  ASSERT_NE(model, nullptr);
  const std::vector<absl::string_view> records = {"1 0 0", "garbage", "0 1 1"};
  const auto error = model->Feed(records, Mode::kTraining, {}).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(BadRecord(error), 1);
  EXPECT_THAT(error.message(), HasSubstr("record 1 of 3"));
  EXPECT_THAT(error.message(), HasSubstr("'feed'"));
  EXPECT_THAT(error.message(), HasSubstr("cannot read 'garbage'"));
  EXPECT_FALSE(BadRecord(absl::OkStatus()));
}

TEST(PluginTest, ThrowingForwardAndWrongLossAreErrors) {
  LoadOptions options = OptionsFor("full.custom_model");
  options.loss = "vector_loss";
  auto model = MustLoad(options);
  ASSERT_NE(model, nullptr);
  auto network = model->CreateNetwork({1});
  const auto forward = (*network)->Forward(torch::ones({2, 3})).status();
  EXPECT_EQ(forward.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(forward.message(), HasSubstr("two columns are wanted"));
  EXPECT_THAT(forward.message(), HasSubstr("full.cc"));
  const auto loss = model->Loss(torch::ones({2}), torch::ones({2, 2}));
  EXPECT_THAT(loss.status().message(), HasSubstr("[2, 2]"));
}

TEST(PluginTest, ParametersOfAWrongTypeAreErrors) {
  LoadOptions options = OptionsFor("full.custom_model");
  options.model_params = "hidden=many";
  auto model = MustLoad(options);
  ASSERT_NE(model, nullptr);
  EXPECT_THAT(model->CreateNetwork({1}).status().message(),
              HasSubstr("hidden='many'"));
  options.model_params = "hidden";
  EXPECT_THAT(Load(options).status().message(), HasSubstr("--model_params"));
}

TEST(PluginTest, ClassAsModelAndBuiltInOptimizer) {
  auto model = MustLoad(MinimalOptions("CustomModel"));
  ASSERT_NE(model, nullptr);
  auto network = model->CreateNetwork({1});
  ASSERT_TRUE(network.ok()) << network.status();
  const auto batch = model->Feed(Records(), Mode::kTraining, {});
  ASSERT_TRUE(batch.ok()) << batch.status();
  const auto outputs = (*network)->Forward(batch->features);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(model->Loss(batch->labels, *outputs).ok());
  EXPECT_EQ(model->Optimizer()->type, "Adam");
  EXPECT_TRUE(model->CreateCallbacks()->empty());
  EXPECT_EQ(*model->OpenReader("x", {}), nullptr);
  EXPECT_EQ(*model->CreatePredictionProcessor(""), nullptr);
  EXPECT_THAT(model->CreateMetrics().status().message(),
              HasSubstr("has no function 'eval_metrics_fn'"));
}

TEST(PluginTest, HolderAsModelAndBuiltInLoss) {
  LoadOptions options = MinimalOptions("sequential");
  options.loss = "bce_with_logits";
  options.eval_metrics_fn = "auc(logits=1)";
  auto model = MustLoad(options);
  ASSERT_NE(model, nullptr);
  auto network = model->CreateNetwork({1});
  const auto batch = model->Feed(Records(), Mode::kTraining, {});
  const auto outputs = (*network)->Forward(batch->features);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(model->Loss(batch->labels, *outputs).ok());
  EXPECT_TRUE(model->CreateMetrics()->Update(batch->labels, *outputs).ok());
}

TEST(PluginTest, MissingFunctionsAreNamed) {
  LoadOptions options = MinimalOptions("CustomModel");
  options.loss = "loss";
  EXPECT_THAT(Load(options).status().message(),
              HasSubstr("minimal.cc has no function 'loss' (--loss)"));
  options = MinimalOptions("no_such_model");
  EXPECT_THAT(Load(options).status().message(),
              HasSubstr("has no function 'no_such_model' (--model_def)"));
  options = MinimalOptions("CustomModel");
  options.loss = "my_los";
  EXPECT_THAT(Load(options).status().message(),
              HasSubstr("(--loss); did you mean my_loss?"));
  // What may be missing must not be misspelt, either.
  options = MinimalOptions("CustomModel");
  options.callbacks = "my_calls";
  EXPECT_THAT(Load(options).status().message(),
              HasSubstr("has no function 'my_calls' (--callbacks); it has"));
}

// Without a compiler: it is not even started.
TEST(PluginTest, AMisspeltNameIsFoundBeforeCompiling) {
  LoadOptions options = MinimalOptions("CustomModle");
  options.toolchain.compiler = "/no/such/compiler";
  EXPECT_THAT(Load(options).status().message(),
              HasSubstr("(--model_def); did you mean CustomModel?"));
}

TEST(PluginTest, WrongArgumentsAreACompileError) {
  const auto status = Load(OptionsFor("wrong_arguments.custom_model")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("takes other arguments"));
  EXPECT_THAT(status.message(), HasSubstr("LossFunction"));
}

// A library made of a few lines, without our headers.
class ForeignLibraryTest : public ::testing::Test {
 protected:
  std::string LoadMessage(const std::string& source) {
    const std::string file = dir_.Path("lib.cc");
    EXPECT_TRUE(WriteFileAtomic(file, source).ok());
    const std::string command =
        "c++ -shared -fPIC -o " + dir_.Path("lib.so") + " " + file;
    EXPECT_EQ(system(command.c_str()), 0);
    LoadOptions options;
    options.model_def = dir_.Path("lib.so");
    return std::string(Load(options).status().message());
  }
  std::string Table(const std::string& fields) {
    return "struct T { unsigned size, magic, abi, layout; const char *torch, "
           "*version; void* f[11]; };\nstatic T t = {" +
           fields +
           "};\nextern \"C\" const T* elasticdl_model_table() { return &t; }\n";
  }

  elasticdl::test::TempDir dir_;
};

TEST_F(ForeignLibraryTest, NoTable) {
  EXPECT_THAT(LoadMessage("int x;\n"),
              HasSubstr("does not export elasticdl_model_table"));
}

TEST_F(ForeignLibraryTest, WrongMagic) {
  EXPECT_THAT(LoadMessage(Table("sizeof(T), 1, 1, 0, \"1\", \"1\"")),
              HasSubstr("is not an ElasticDL model library"));
}

TEST_F(ForeignLibraryTest, WrongAbiVersion) {
  EXPECT_THAT(LoadMessage(Table("sizeof(T), 0x4d444c45, 99, 0, \"1\", \"1\"")),
              HasSubstr("has ABI version 99"));
}

TEST_F(ForeignLibraryTest, WrongTorchVersion) {
  EXPECT_THAT(
      LoadMessage(Table("sizeof(T), 0x4d444c45, 4, 0, \"0.4.1\", \"1\"")),
      HasSubstr("libtorch 0.4.1"));
}

TEST_F(ForeignLibraryTest, UndefinedSymbol) {
  EXPECT_THAT(LoadMessage("extern int nowhere(); int x = nowhere();\n"),
              HasSubstr("nowhere"));
}

}  // namespace
}  // namespace elasticdl::model
