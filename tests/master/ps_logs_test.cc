// Logs of parameter servers that are not needed any more.
#include "ps_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::master {
namespace {

using ::testing::UnorderedElementsAre;

TEST(PsLogsTest, RemovesRunsAndNothingElse) {
  const test::TempDir dir;
  const std::string run = NewRun();
  const std::string other = NewRun();
  EXPECT_NE(run, other);
  for (const std::string& name :
       {run, other, std::string("checkpoints"), std::string("0123456789abcdeg"),
        std::string("0123456789abcdef0")}) {
    ASSERT_TRUE(MakeDirectories(JoinPath(dir.Path(name), "ps-0")).ok());
  }
  EXPECT_TRUE(RemoveOtherPsLogs(dir.path(), run).ok());
  EXPECT_THAT(*ListDirectory(dir.path()),
              UnorderedElementsAre(run, "checkpoints", "0123456789abcdeg",
                                   "0123456789abcdef0"));
  EXPECT_TRUE(RemovePsLogs(dir.path(), run).ok());
  EXPECT_FALSE(FileExists(dir.Path(run)));
  EXPECT_TRUE(RemovePsLogs(dir.path(), "checkpoints").ok());
  EXPECT_TRUE(FileExists(dir.Path("checkpoints")));
}

TEST(PsLogsTest, FolderNeedNotExist) {
  const test::TempDir dir;
  EXPECT_TRUE(RemoveOtherPsLogs(dir.Path("no"), NewRun()).ok());
  EXPECT_TRUE(RemovePsLogs(dir.Path("no"), NewRun()).ok());
}

}  // namespace
}  // namespace elasticdl::master
