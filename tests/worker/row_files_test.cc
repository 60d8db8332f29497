// Rows of an export in files of a bounded size, and their index.
#include "row_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::worker {
namespace {

using Json = nlohmann::json;

class RowFilesTest : public testing::Test {
 protected:
  // So many rows from `first` on; row i has 2 i and 2 i + 1.
  static void AddRows(RowFiles& files, int64_t first, int64_t count) {
    std::vector<int64_t> ids;
    std::vector<float> values;
    for (int64_t i = first; i < first + count; ++i) {
      ids.push_back(-i);
      values.push_back(static_cast<float>(2 * i));
      values.push_back(static_cast<float>(2 * i + 1));
    }
    ASSERT_TRUE(files.Add(ids, values.data()).ok());
  }
  torch::Tensor Read(const std::string& file, const char* name) {
    const std::string bytes = ReadFile(dir_.Path(file)).value();
    return torch::pickle_load(std::vector<char>(bytes.begin(), bytes.end()))
        .toGenericDict()
        .at(name)
        .toTensor();
  }
  RowFiles::Options Options(const std::string& name) {
    return {dir_.path(), name, /*dim=*/2, /*max_values=*/6};
  }

  const test::TempDir dir_;
};

TEST_F(RowFilesTest, AFileIsWrittenWhenItIsFull) {
  RowFiles files(Options("user.embeddings"));
  AddRows(files, 0, 2);
  EXPECT_TRUE(files.files().empty());
  AddRows(files, 2, 2);
  EXPECT_EQ(files.files().size(), 1u);
  AddRows(files, 4, 1);
  ASSERT_TRUE(files.Finish().ok());
  EXPECT_EQ(files.rows(), 5);
  ASSERT_EQ(files.files().size(), 2u);
  EXPECT_TRUE(torch::equal(Read("user.embeddings-0.pt", "ids"),
                           torch::arange(0, -4, -1, torch::kLong)));
  EXPECT_TRUE(torch::equal(Read("user.embeddings-0.pt", "rows"),
                           torch::arange(8, torch::kFloat).reshape({4, 2})));
  EXPECT_TRUE(torch::equal(Read("user.embeddings-1.pt", "ids"),
                           torch::full({1}, -4, torch::kLong)));
  EXPECT_TRUE(torch::equal(Read("user.embeddings-1.pt", "rows"),
                           torch::tensor({{8.0F, 9.0F}})));
}

TEST_F(RowFilesTest, TheIndexHasAllOfThem) {
  RowFiles full(Options("a"));
  AddRows(full, 0, 3);
  AddRows(full, 3, 1);
  ASSERT_TRUE(full.Finish().ok());
  RowFiles none(Options("b"));
  ASSERT_TRUE(none.Finish().ok());
  EXPECT_EQ(Read("b-0.pt", "rows").sizes(), torch::IntArrayRef({0, 2}));
  RowIndexFile index;
  index.Add("a/x", 2, full);
  index.Add("b", 2, none);
  ASSERT_TRUE(index.Write(dir_.path()).ok());
  EXPECT_EQ(Json::parse(ReadFile(dir_.Path("index.json")).value()),
            Json::parse(R"({"tables":[
              {"table":"a/x","dim":2,"dtype":"float32","rows":4,
               "files":[{"file":"a-0.pt","rows":3},{"file":"a-1.pt","rows":1}]},
              {"table":"b","dim":2,"dtype":"float32","rows":0,
               "files":[{"file":"b-0.pt","rows":0}]}]})"));
  const v1::ExportedRows summary = index.Summary("folder");
  EXPECT_EQ(summary.folder(), "folder");
  EXPECT_EQ(summary.tables(), 2);
  EXPECT_EQ(summary.files(), 3);
  EXPECT_EQ(summary.rows(), 4);
}

}  // namespace
}  // namespace elasticdl::worker
