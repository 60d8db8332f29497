// Names with arguments, lists of them, and key=value lists.
#include "expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(ExpressionTest, ParsesNameAndArguments) {
  const auto plain = ParseExpression(" mse ");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->name, "mse");
  EXPECT_TRUE(plain->args.empty());
  const auto full = ParseExpression("image(shape=1x28x28, label='y')");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->name, "image");
  EXPECT_THAT(full->args,
              ElementsAre(Pair("label", "y"), Pair("shape", "1x28x28")));
}

TEST(ExpressionTest, RejectsWhatIsNoExpression) {
  for (const char* text : {"", "f(", "f(a=1", "1f", "f(a)", "f(a=1,a=2)"}) {
    EXPECT_FALSE(ParseExpression(text).ok()) << text;
  }
}

TEST(ExpressionTest, ChecksArgumentsAndNumbers) {
  const auto e = ParseExpression("auc(bins=x)");
  ASSERT_TRUE(e.ok());
  EXPECT_TRUE(e->CheckArgs({"bins"}).ok());
  EXPECT_THAT(e->CheckArgs({"logits"}).message(), HasSubstr("'bins'"));
  EXPECT_THAT(e->Number("bins", 1).status().message(), HasSubstr("bins=x"));
  EXPECT_EQ(*e->Number("other", 7), 7);
}

TEST(ExpressionTest, SplitsListsOutsideOfParentheses) {
  EXPECT_THAT(SplitList("a(x=1,y=2),b"), ElementsAre("a(x=1,y=2)", "b"));
}

TEST(ExpressionTest, KeyValuesMayContainEqualSignsAndBlanks) {
  const auto pairs = ParseKeyValues("a=1; b = x=y ;c='z';");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_THAT(*pairs,
              ElementsAre(Pair("a", "1"), Pair("b", "x=y"), Pair("c", "z")));
  EXPECT_FALSE(ParseKeyValues("a").ok());
}

}  // namespace
}  // namespace elasticdl::model
