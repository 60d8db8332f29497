// Names in model files, and what is said of a misspelt one.
#include "declared_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kSource[] = R"(
#include <elasticdl/model.h>
#define TWICE(x) \
  twice(x)
// int comment(int x);
struct Net : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return relu(fc(x)); }
};
TORCH_MODULE(Classifier);
static_assert(sizeof(int) == 4, "four (bytes) {");
namespace {
const double kRate = Compute(0.1);
elasticdl::Batch feed(const elasticdl::Records& records, int n = f(3)) {
  if (n > 0) { return Parse(records); }
  return {};
}
}  // namespace
torch::Tensor Net::late(int x) { return later(x); }
std::shared_ptr<Net> custom_model(const elasticdl::Params& params) {
  return std::make_shared<Net>();
}
torch::Tensor
loss (const torch::Tensor& labels);
extern "C" {
int exported() { return 1; }
}
)";

TEST(DeclaredNamesTest, FindsFunctionsAndClasses) {
  EXPECT_THAT(DeclaredNames(kSource),
              ElementsAre("Net", "Classifier", "feed", "custom_model", "loss",
                          "exported"));
  EXPECT_THAT(DeclaredNames(""), IsEmpty());
  EXPECT_THAT(DeclaredNames("}}}((( \"unfinished"), IsEmpty());
}

TEST(DeclaredNamesTest, KnowsWhichWordsMayBeDefined) {
  EXPECT_TRUE(MayDefine({{"a.cc", kSource}}, "loss"));
  EXPECT_FALSE(MayDefine({{"a.cc", kSource}}, "los"));
  EXPECT_FALSE(MayDefine({{"a.cc", kSource}}, "comment"));
  EXPECT_TRUE(MayDefine({{"a.cc", kSource}, {"b.h", "int los();"}}, "los"));
  EXPECT_TRUE(MayDefine({{"a.cc", "#define F(x) int lo##x()\nF(s);"}}, "los"));
}

TEST(DeclaredNamesTest, SaysWhatIsMeantOrWhatThereIs) {
  const std::vector<SourceFile> sources = {{"zoo/a.cc", kSource}};
  EXPECT_EQ(MissingFunction("zoo/a.cc", "los", "loss", sources).message(),
            "model file zoo/a.cc has no function 'los' (--loss); did you mean "
            "loss?");
  EXPECT_EQ(
      MissingFunction("zoo/a.cc", "optimizer", "optimizer", sources).message(),
      "model file zoo/a.cc has no function 'optimizer' (--optimizer); it "
      "has Net, Classifier, feed, custom_model, loss, exported");
  EXPECT_EQ(MissingFunction("a.so", "loss", "loss", {}).message(),
            "model file a.so has no function 'loss' (--loss)");
}

}  // namespace
}  // namespace elasticdl::model
