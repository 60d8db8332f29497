// scripts/elasticdl-gen-data: what GEN_DATA of a docker build does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "support/child_process.h"
#include "support/temp_dir.h"

namespace elasticdl::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GenDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Nothing is installed or fetched from a test.
    ASSERT_TRUE(MakeDirectories(dir_.Path("bin")).ok());
    ASSERT_TRUE(
        WriteFileAtomic(dir_.Path("bin/npm"), "#!/bin/sh\nexit 1\n", 0755)
            .ok());
    ASSERT_TRUE(MakeDirectories(dir_.Path("given")).ok());
  }
  // A small data set in this folder of the given ones.
  void Give(const std::string& folder) {
    ASSERT_EQ(Run({ELASTICDL_PROGRAM, "data", "generate", "frappe",
                   "--records=10", "--output=" + dir_.Path("given/" + folder)}),
              0)
        << output_;
  }
  int GenData(const std::vector<std::string>& sets) {
    std::vector<std::string> argv = {ELASTICDL_GEN_DATA, dir_.Path("given"),
                                     dir_.Path("out")};
    argv.insert(argv.end(), sets.begin(), sets.end());
    return Run(argv);
  }
  int Run(const std::vector<std::string>& argv) {
    test::ChildProcess::Options options;
    options.argv = argv;
    options.environment = {absl::StrCat("PATH=", dir_.Path("bin"), ":",
                                        ELASTICDL_BIN_DIR, ":",
                                        std::getenv("PATH"))};
    options.log = dir_.Path(absl::StrCat("run", ++runs_));
    test::ChildProcess child(options);
    const int code = child.Wait().value_or(-1);
    output_ = absl::StrCat(child.out(), child.err());
    return code;
  }
  std::vector<std::string> Made() const {
    return *ListDirectory(dir_.Path("out"));
  }

  test::TempDir dir_;
  std::string output_;
  int runs_ = 0;
};

TEST_F(GenDataTest, YesMeansMnist) {
  Give("mnist");
  ASSERT_EQ(GenData({"yes"}), 0) << output_;
  EXPECT_THAT(Made(), ElementsAre("mnist"));
  EXPECT_THAT(output_, HasSubstr("10 records in"));
}

TEST_F(GenDataTest, NothingIsMadeUnlessWanted) {
  Give("mnist");
  ASSERT_EQ(GenData({}), 0) << output_;
  EXPECT_THAT(Made(), IsEmpty());
  ASSERT_EQ(GenData({"no"}), 0) << output_;
  EXPECT_THAT(Made(), IsEmpty());
}

TEST_F(GenDataTest, TakesSetsFromDockerDataOfTheSourceTree) {
  Give("docker/data/frappe");
  Give("docker/data/mnist");
  ASSERT_EQ(GenData({"mnist", "frappe"}), 0) << output_;
  EXPECT_THAT(Made(), ElementsAre("frappe", "mnist"));
}

TEST_F(GenDataTest, AnUnknownSetEndsTheBuild) {
  EXPECT_NE(GenData({"mnits"}), 0);
  EXPECT_THAT(output_, HasSubstr("mnits"));
}

}  // namespace
}  // namespace elasticdl::cli
