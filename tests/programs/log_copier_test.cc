// Growing logs of several pods, copied to one file.
#include "log_copier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "support/follow.h"
#include "support/temp_dir.h"

namespace elasticdl::programs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class LogCopierTest : public ::testing::Test {
 protected:
  LogCopierTest() {
    EXPECT_TRUE(MakeDirectories(dir_.Path("logs")).ok());
    Append("../all", "before\n");
  }
  void Append(const std::string& name, const std::string& text) {
    std::ofstream(dir_.Path("logs/" + name), std::ios::app) << text;
  }
  std::unique_ptr<LogCopier> Start(const std::string& target,
                                   bool go_on = false) {
    auto copier = LogCopier::Start(dir_.Path("logs"), dir_.Path(target),
                                   dir_.Path("copied"), go_on);
    EXPECT_TRUE(copier.ok()) << copier.status();
    return *std::move(copier);
  }
  std::vector<std::string> Lines(const std::string& target) {
    return absl::StrSplit(*ReadFile(dir_.Path(target)), '\n',
                          absl::SkipEmpty());
  }

  test::TempDir dir_;
};

TEST_F(LogCopierTest, CopiesWholeLinesAsTheyCome) {
  Append("master.log", "m1\n");
  test::LineFollower copy(dir_.Path("all"));
  const auto copier = Start("all");
  EXPECT_EQ(copy.Next(), "before");
  Append("master.log", "m2\nm3 beg");
  EXPECT_EQ(copy.Next(), "m1");
  EXPECT_EQ(copy.Next(), "m2");
  // A file that is new, while a line of the other is not complete.
  Append("worker.log", "w1\n");
  EXPECT_EQ(copy.Next(), "w1");
  Append("master.log", "in\n");
  EXPECT_EQ(copy.Next(), "m3 begin");
}

TEST_F(LogCopierTest, CopiesTheRestAtTheEnd) {
  auto copier = Start("all");
  Append("master.log", "m1\nno newline");
  Append("worker.log", "w1\n");
  Append("notes.txt", "not a log\n");
  copier.reset();
  EXPECT_THAT(Lines("all"),
              UnorderedElementsAre("before", "m1", "no newline", "w1"));
}

// Lines that were written while there was no master are not lost, and none are
// there twice.
TEST_F(LogCopierTest, GoesOnWhereTheOneBeforeItStopped) {
  Append("master.log", "m1\n");
  auto copier = Start("all");
  Append("worker-0.log", "w1\n");
  copier.reset();
  Append("worker-0.log", "w2\n");
  Append("worker-1.log", "v1\n");
  copier = Start("all", /*go_on=*/true);
  Append("master.log", "m2\n");
  copier.reset();
  EXPECT_THAT(Lines("all"),
              UnorderedElementsAre("before", "m1", "w1", "w2", "v1", "m2"));
}

TEST_F(LogCopierTest, NotesThatAreNoneAreIgnored) {
  Append("../copied", "x\n-1 master.log\n\n5\n");
  Append("master.log", "m1\n");
  auto copier = Start("all", /*go_on=*/true);
  Append("master.log", "m2\n");
  copier.reset();
  EXPECT_THAT(Lines("all"), ElementsAre("before", "m1", "m2"));
}

TEST_F(LogCopierTest, DoesNotCopyTheTargetToItself) {
  auto copier = Start("logs/all.log");
  Append("master.log", "m1\n");
  copier.reset();
  copier = Start("logs/all.log");
  copier.reset();
  EXPECT_THAT(Lines("logs/all.log"), ElementsAre("m1", "m1"));
}

TEST_F(LogCopierTest, BadTargetNamesTheFlag) {
  const auto copier =
      LogCopier::Start(dir_.Path("logs"), dir_.Path("no/such/file"),
                       dir_.Path("copied"), /*go_on=*/false);
  EXPECT_THAT(std::string(copier.status().message()),
              HasSubstr("--log_file_path"));
}

}  // namespace
}  // namespace elasticdl::programs
