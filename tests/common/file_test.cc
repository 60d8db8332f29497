#include "elasticdl/common/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/small_disk.h"
#include "support/temp_dir.h"

namespace elasticdl {
namespace {

TEST(FileTest, WritesAtomicallyAndReadsBack) {
  test::TempDir dir;
  const std::string path = dir.Path("a");
  const std::string data(100'000, 'x');
  ASSERT_TRUE(WriteFileAtomic(path, data, 0600).ok());
  EXPECT_EQ(*ReadFile(path), data);
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // No temporary file is left behind.
  EXPECT_EQ(ListDirectory(dir.path())->size(), 1u);
}

TEST(FileTest, ErrorsNameThePath) {
  test::TempDir dir;
  const auto missing = ReadFile(dir.Path("nothing"));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("nothing"), std::string::npos);
  EXPECT_FALSE(WriteFileAtomic(dir.Path("no/such/dir/a"), "x").ok());
}

TEST(FileTest, FullDiskIsResourceExhausted) {
  const absl::Status status = [] {
    auto writer = LineWriter::Open("/dev/full");
    return writer.ok() ? writer->Append("x") : writer.status();
  }();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(FileTest, MakesAndRemovesTrees) {
  test::TempDir dir;
  ASSERT_TRUE(MakeDirectories(dir.Path("a/b/c")).ok());
  EXPECT_TRUE(IsDirectory(dir.Path("a/b/c")));
  ASSERT_TRUE(WriteFileAtomic(dir.Path("a/file"), "x").ok());
  EXPECT_FALSE(MakeDirectories(dir.Path("a/file/b")).ok());
  ASSERT_TRUE(RemoveTree(dir.Path("a")).ok());
  EXPECT_FALSE(FileExists(dir.Path("a")));
  EXPECT_TRUE(RemoveTree(dir.Path("a")).ok());
}

// A successor may cut the file to this length.
TEST(FileTest, LineWriterCountsOnlyWhatIsInTheFile) {
  test::TempDir dir;
  const bool permitted = test::RunOnSmallDisk(dir.path(), "64k", [&] {
    const std::string path = dir.Path("log");
    auto writer = LineWriter::Open(path);
    EXPECT_TRUE(writer->Append("first").ok());
    const std::string large(100'000, 'x');
    EXPECT_EQ(writer->Append(large).code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(*ReadFile(path), "first\n") << "half a line stays";
    EXPECT_EQ(writer->bytes(), 6);
    EXPECT_TRUE(writer->Append("second").ok());
    EXPECT_EQ(*ReadFile(path), "first\nsecond\n");
    EXPECT_EQ(writer->bytes(), 13);
  });
  if (!permitted) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
}

TEST(FileTest, LineWriterLeavesTheLinesOfOthersAlone) {
  test::TempDir dir;
  const bool permitted = test::RunOnSmallDisk(dir.path(), "64k", [&] {
    const std::string path = dir.Path("log");
    auto writer = LineWriter::Open(path);
    auto other = LineWriter::Open(path);
    EXPECT_TRUE(writer->Append("mine").ok());
    const std::string theirs(40'000, 'y');
    EXPECT_TRUE(other->Append(theirs).ok());
    EXPECT_FALSE(writer->Append(std::string(30'000, 'x')).ok());
    EXPECT_NE(ReadFile(path)->find(theirs + "\n"), std::string::npos);
    EXPECT_EQ(writer->bytes(), static_cast<int64_t>(ReadFile(path)->size()));
  });
  if (!permitted) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
}

TEST(FileTest, LineWriterAppendsWholeLines) {
  test::TempDir dir;
  {
    auto writer = LineWriter::Open(dir.Path("log"));
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->Append("one").ok());
  }
  auto writer = LineWriter::Open(dir.Path("log"));
  ASSERT_TRUE(writer->Append("two").ok());
  EXPECT_EQ(*ReadFile(dir.Path("log")), "one\ntwo\n");
}

}  // namespace
}  // namespace elasticdl
