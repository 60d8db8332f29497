// `elasticdl data`: exit codes and output of its commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data.h"
#include "data/put_file.h"
#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DataCommandTest : public testing::Test {
 protected:
  int Run(const std::vector<std::string>& args) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = RunData(args);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }
  std::string Put(const std::string& name, const std::string& bytes) {
    const std::string path = dir_.Path(name);
    EXPECT_TRUE(data::PutFile(path, bytes));
    return path;
  }
  std::string ConvertedCsv() {
    EXPECT_EQ(
        Run({"convert", Put("t.csv", "x,y\n1,a\n2,b\n3,c\n"), "--output",
             dir_.Path("out"), "--records_per_file=2", "--label_column=x"}),
        0)
        << err_;
    return dir_.Path("out");
  }

  test::TempDir dir_;
  std::string out_;
  std::string err_;
};

TEST_F(DataCommandTest, UsageErrorsAreTwo) {
  EXPECT_EQ(Run({}), 1);
  EXPECT_EQ(Run({"convrt"}), 2);
  EXPECT_THAT(err_, HasSubstr("did you mean convert?"));
  EXPECT_EQ(Run({"convert", "x.csv"}), 2);
  EXPECT_THAT(err_, HasSubstr("output"));
  EXPECT_EQ(Run({"verify", "--colour", "x"}), 2);
  EXPECT_EQ(Run({"fetch", "mist", "--output", dir_.Path("m")}), 2);
  EXPECT_EQ(Run({"--help"}), 0);
  EXPECT_THAT(out_, AllOf(HasSubstr("convert"), HasSubstr("fetch"),
                          HasSubstr("generate"), HasSubstr("info"),
                          HasSubstr("head"), HasSubstr("verify")));
  EXPECT_EQ(Run({"convert", "--help"}), 0);
}

TEST_F(DataCommandTest, ConvertsAndLooksIntoTheResult) {
  const std::string folder = ConvertedCsv();
  EXPECT_THAT(out_, HasSubstr("3 records written to " + folder));
  EXPECT_THAT(err_, HasSubstr("converting: 3 of 3 records"));
  EXPECT_EQ(Run({"info", folder}), 0);
  EXPECT_THAT(out_, HasSubstr("3 records in 2 files, 2 chunks"));
  EXPECT_THAT(out_, HasSubstr("snappy"));
  EXPECT_EQ(Run({"head", "-n", "2", folder}), 0) << err_;
  EXPECT_EQ(out_,
            "label: int64[1] {1}  y: bytes[1] {\"a\"}\n"
            "label: int64[1] {2}  y: bytes[1] {\"b\"}\n");
  EXPECT_EQ(Run({"verify", folder}), 0);
  EXPECT_THAT(out_, HasSubstr("2 files, 2 chunks, 3 records sound"));
}

TEST_F(DataCommandTest, VerifySaysWhereItIsBad) {
  const std::string folder = ConvertedCsv();
  const std::string path = folder + "/data-00001";
  std::string bytes = ReadFile(path).value();
  bytes.back() ^= 1;
  ASSERT_TRUE(data::PutFile(path, bytes));
  EXPECT_EQ(Run({"verify", folder}), 1);
  EXPECT_THAT(err_, HasSubstr(path + ": chunk 0 at byte offset 0: the "
                                     "payload's checksum differs"));
  EXPECT_THAT(out_, HasSubstr("1 problem\n"));
  EXPECT_EQ(Run({"head", folder}), 1);
  EXPECT_THAT(out_, HasSubstr("label: int64[1] {2}"));
}

TEST_F(DataCommandTest, TruncatedFileShowsInInfo) {
  const std::string folder = ConvertedCsv();
  const std::string path = folder + "/data-00000";
  const std::string bytes = ReadFile(path).value();
  ASSERT_TRUE(data::PutFile(path, bytes.substr(0, 30)));
  EXPECT_EQ(Run({"info", folder}), 1);
  EXPECT_THAT(out_, HasSubstr("DAMAGED"));
  EXPECT_THAT(err_, HasSubstr("truncated chunk"));
}

TEST_F(DataCommandTest, MissingAndEmptyPathsAreNamed) {
  for (const char* command : {"info", "head", "verify"}) {
    EXPECT_EQ(Run({command, dir_.Path("none")}), 1);
    EXPECT_THAT(err_, HasSubstr(dir_.Path("none")));
    EXPECT_EQ(Run({command, dir_.path()}), 1);
    EXPECT_THAT(err_, HasSubstr("no records"));
  }
}

TEST_F(DataCommandTest, GeneratePrintsTheBestAuc) {
  EXPECT_EQ(Run({"generate", "frappe", "--records=500", "--seed=3", "--output",
                 dir_.Path("frappe")}),
            0);
  EXPECT_THAT(out_, HasSubstr("frappe: 500 training and 50 test records"));
  EXPECT_THAT(out_, HasSubstr("best reachable AUC: 0."));
  EXPECT_EQ(Run({"generate", "frapp"}), 2);
  EXPECT_THAT(err_, HasSubstr("ctr, census, frappe"));
}

}  // namespace
}  // namespace elasticdl::cli
