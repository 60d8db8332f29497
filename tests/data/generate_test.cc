// Click-through data: shapes, reproducibility, and the truth of its AUC.
#include "elasticdl/data/generate.h"

#include <gtest/gtest.h>

#include "elasticdl/common/file.h"
#include "elasticdl/data/example.h"
#include "elasticdl/data/reader.h"
#include "support/temp_dir.h"

namespace elasticdl::data {
namespace {

std::vector<std::string> Records(const std::string& folder) {
  const auto reader = OpenDataReader(folder, {});
  EXPECT_TRUE(reader.ok()) << reader.status();
  std::vector<std::string> records;
  const auto shards = *(*reader)->CreateShards();
  for (const Shard& shard : shards) {
    const auto batch = (*reader)->Read(shard.name, shard.begin, shard.end);
    for (const auto record : batch->records()) records.emplace_back(record);
  }
  return records;
}

class GenerateTest : public testing::Test {
 protected:
  GenerateResult Make(const std::string& set, const std::string& folder,
                      int64_t records, uint64_t seed = 1) {
    GenerateOptions options;
    options.records = records;
    options.seed = seed;
    options.output.directory = dir_.Path(folder);
    const auto result = GenerateDataset(set, options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.value_or(GenerateResult());
  }
  test::TempDir dir_;
};

TEST(ExpectedAucTest, SimpleCases) {
  EXPECT_DOUBLE_EQ(ExpectedAuc({0, 1}), 1);
  EXPECT_DOUBLE_EQ(ExpectedAuc({0.5, 0.5, 0.5}), 0.5);
  // Right with .9 * .9, wrong with .1 * .1.
  EXPECT_DOUBLE_EQ(ExpectedAuc({0.9, 0.1}), 0.81 / 0.82);
  EXPECT_DOUBLE_EQ(ExpectedAuc({}), 0.5);
}

TEST_F(GenerateTest, FrappeHasTenIdsWithinTheirFields) {
  const auto result = Make("frappe", "f", 2000);
  EXPECT_EQ(result.train_records, 2000);
  EXPECT_EQ(result.test_records, 200);
  int64_t positives = 0;
  const auto records = Records(dir_.Path("f/train"));
  ASSERT_EQ(records.size(), 2000U);
  for (const std::string& record : records) {
    const auto example = ExampleView::Parse(record);
    std::vector<int64_t> ids(10);
    ASSERT_TRUE(example->CopyInt64s("feature", absl::MakeSpan(ids)).ok());
    EXPECT_TRUE(ids[0] >= 1 && ids[0] <= 957);
    EXPECT_TRUE(ids[1] >= 958 && ids[1] <= 5039);
    EXPECT_LE(ids[9], 5382);
    positives += *example->Int64("label");
  }
  EXPECT_GT(positives, 200);
  EXPECT_LT(positives, 1800);
  EXPECT_GT(result.best_auc, 0.7);
  EXPECT_LT(result.best_auc, 0.99);
}

TEST_F(GenerateTest, CensusAndCtrHaveTheirFeatures) {
  Make("census", "census", 100);
  const auto census = Records(dir_.Path("census/test"));
  ASSERT_EQ(census.size(), 10U);
  const auto person = ExampleView::Parse(census[0]);
  EXPECT_EQ(person->features().size(), 14U);
  EXPECT_TRUE(person->Float("age").ok());
  EXPECT_TRUE(person->Bytes("native-country").ok());
  EXPECT_TRUE(person->Int64("label").ok());
  Make("ctr", "ctr", 100);
  const auto clicks = Records(dir_.Path("ctr/train"));
  const auto click = ExampleView::Parse(clicks[5]);
  EXPECT_EQ(click->features().size(), 40U);
  EXPECT_TRUE(click->Int64("I13").ok());
  EXPECT_TRUE(click->Bytes("C26").ok());
}

TEST_F(GenerateTest, SeedDecidesEverything) {
  Make("ctr", "a", 50);
  Make("ctr", "b", 50);
  Make("ctr", "c", 50, 2);
  EXPECT_EQ(Records(dir_.Path("a/train")), Records(dir_.Path("b/train")));
  EXPECT_NE(Records(dir_.Path("a/train")), Records(dir_.Path("c/train")));
}

TEST_F(GenerateTest, RefusesNonsense) {
  GenerateOptions options;
  options.output.directory = dir_.Path("x");
  EXPECT_EQ(GenerateDataset("criteo", options).status().code(),
            absl::StatusCode::kInvalidArgument);
  options.records = 0;
  EXPECT_EQ(GenerateDataset("ctr", options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace elasticdl::data
