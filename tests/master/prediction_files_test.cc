#include "prediction_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;

class PredictionFilesTest : public testing::Test {
 protected:
  void Put(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(dir_.Path(name), text).ok());
  }
  std::string Get(const std::string& name) {
    return ReadFile(dir_.Path(name)).value_or("(none)");
  }

  const test::TempDir dir_;
};

TEST_F(PredictionFilesTest, CutsWhatWasNotReported) {
  Put("predictions-worker-0.csv", "header\na,1\na,2\n");
  Put("predictions-worker-1.csv", "header\na,3\n");
  Put("predictions-worker-2.csv", "header\na,3\n");
  Put("predictions-worker-10.csv", "");
  Put("predictions-worker-x.csv", "mine");
  Put("notes.csv", "mine");
  ASSERT_TRUE(CutPredictions(dir_.path(), {{0, 11}, {1, 11}, {7, 5}}).ok());
  EXPECT_EQ(Get("predictions-worker-0.csv"), "header\na,1\n");
  EXPECT_EQ(Get("predictions-worker-1.csv"), "header\na,3\n");
  EXPECT_EQ(Get("predictions-worker-2.csv"), "");
  EXPECT_EQ(Get("predictions-worker-10.csv"), "");
  EXPECT_EQ(Get("predictions-worker-x.csv"), "mine");
  EXPECT_EQ(Get("notes.csv"), "mine");
}

TEST_F(PredictionFilesTest, FilesOfTheModelsProcessorAreLeftAlone) {
  Put("predictions-worker-0.csv", "rows");
  ASSERT_TRUE(CutPredictions(dir_.path(), {{0, 0}}).ok());
  EXPECT_EQ(Get("predictions-worker-0.csv"), "rows");
}

TEST_F(PredictionFilesTest, RemovesThoseOfAnEarlierJob) {
  Put("predictions-worker-3.csv", "header\n");
  Put("notes.csv", "mine");
  ASSERT_TRUE(RemovePredictions(dir_.path()).ok());
  EXPECT_THAT(*ListDirectory(dir_.path()), ElementsAre("notes.csv"));
}

TEST_F(PredictionFilesTest, AFolderThatIsNotThereHasNone) {
  EXPECT_TRUE(RemovePredictions(dir_.Path("none")).ok());
  EXPECT_TRUE(CutPredictions(dir_.Path("none"), {{0, 5}}).ok());
}

}  // namespace
}  // namespace elasticdl::master
