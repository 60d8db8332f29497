// Archives, checked with the machine's tar.
#include "tar_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "support/temp_dir.h"

namespace elasticdl::docker {
namespace {

using ::testing::HasSubstr;
using Type = ContextEntry::Type;

ContextEntry Text(const std::string& name, const std::string& content) {
  ContextEntry entry;
  entry.name = name;
  entry.content = content;
  entry.size = static_cast<int64_t>(content.size());
  return entry;
}

// Reads with pieces of `piece` bytes at most.
absl::StatusOr<std::string> ReadAll(const std::vector<ContextEntry>& entries,
                                    size_t piece) {
  TarStream tar(entries, TarOptions());
  std::string all;
  std::string buffer(piece, '\0');
  while (true) {
    const absl::StatusOr<size_t> n = tar.Read(buffer.data(), piece);
    if (!n.ok()) return n.status();
    if (*n == 0) return all;
    all.append(buffer, 0, *n);
  }
}

// The output of a shell command.
std::string Shell(const std::string& command) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"),
                                             pclose);
  std::string text;
  char buffer[4096];
  size_t n = 0;
  while ((n = fread(buffer, 1, sizeof(buffer), pipe.get())) > 0) {
    text.append(buffer, n);
  }
  return text;
}

TEST(TarStreamTest, TarReadsIt) {
  const test::TempDir dir;
  const std::string long_folder =
      absl::StrCat(std::string(90, 'd'), "/", std::string(90, 'e'));
  const std::string long_name = absl::StrCat(long_folder, "/f");
  const std::string longer_name(200, 'n');
  const std::string long_target(180, 't');
  ASSERT_TRUE(WriteFileAtomic(dir.Path("real"), std::string(1000, 'r')).ok());

  std::vector<ContextEntry> entries;
  ContextEntry folder;
  folder.name = "folder";
  folder.type = Type::kFolder;
  folder.mode = 0750;
  entries.push_back(folder);
  ContextEntry script = Text("folder/run.sh", "#!/bin/sh\n");
  script.mode = 0755;
  script.modified = 1'000'000'000;
  entries.push_back(script);
  entries.push_back(Text("empty", ""));
  entries.push_back(Text("block", std::string(512, 'b')));
  entries.push_back(Text(long_name, "long"));
  entries.push_back(Text(longer_name, "longer"));
  ContextEntry link;
  link.type = Type::kLink;
  link.name = "link";
  link.target = "folder/run.sh";
  entries.push_back(link);
  link.name = "far";
  link.target = long_target;
  entries.push_back(link);
  ContextEntry real;
  real.name = "sp ace \xc3\xa4";
  real.path = dir.Path("real");
  real.size = 1000;
  entries.push_back(real);

  const absl::StatusOr<std::string> archive = ReadAll(entries, 1 << 16);
  ASSERT_TRUE(archive.ok()) << archive.status();
  EXPECT_EQ(archive->size() % 512, 0u);
  for (const size_t piece : {1u, 7u, 511u, 513u}) {
    EXPECT_EQ(ReadAll(entries, piece).value(), *archive);
  }
  ASSERT_TRUE(WriteFileAtomic(dir.Path("a.tar"), *archive).ok());
  ASSERT_TRUE(MakeDirectories(dir.Path("out")).ok());
  EXPECT_EQ(Shell(absl::StrCat("tar -xf ", dir.Path("a.tar"), " -C ",
                               dir.Path("out"), " 2>&1")),
            "");
  EXPECT_EQ(ReadFile(dir.Path("out/folder/run.sh")).value(), "#!/bin/sh\n");
  EXPECT_EQ(ReadFile(dir.Path("out/empty")).value(), "");
  EXPECT_EQ(ReadFile(dir.Path("out/block")).value(), std::string(512, 'b'));
  EXPECT_EQ(ReadFile(dir.Path("out/" + long_name)).value(), "long");
  EXPECT_EQ(ReadFile(dir.Path("out/" + longer_name)).value(), "longer");
  EXPECT_EQ(ReadFile(dir.Path("out/sp ace \xc3\xa4")).value(),
            std::string(1000, 'r'));
  struct stat info = {};
  ASSERT_EQ(stat(dir.Path("out/folder/run.sh").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0755u);
  EXPECT_EQ(info.st_mtime, 1'000'000'000);
  ASSERT_EQ(stat(dir.Path("out/folder").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0750u);
  EXPECT_EQ(Shell("readlink " + dir.Path("out/link")), "folder/run.sh\n");
  EXPECT_EQ(Shell("readlink " + dir.Path("out/far")), long_target + "\n");
  EXPECT_THAT(Shell("tar --numeric-owner -tvf " + dir.Path("a.tar")),
              HasSubstr("-rwxr-xr-x 0/0"));
}

// 100 characters fit one field, 255 two; every length around must survive.
TEST(TarStreamTest, NamesOfEveryLength) {
  const test::TempDir dir;
  std::vector<ContextEntry> entries;
  std::string expected;
  for (size_t size = 95; size < 275; ++size) {
    std::string name = absl::StrCat(size);
    while (name.size() < size) {
      name += name.size() % 60 == 59 && name.size() + 1 < size ? '/' : 'x';
    }
    entries.push_back(Text(name, ""));
    absl::StrAppend(&expected, name, "\n");
  }
  ASSERT_TRUE(
      WriteFileAtomic(dir.Path("a.tar"), ReadAll(entries, 4096).value()).ok());
  EXPECT_EQ(Shell("tar -tf " + dir.Path("a.tar") + " 2>&1"), expected);
}

TEST(TarStreamTest, HugeFilesHaveAPaxSize) {
  ContextEntry entry;
  entry.name = "huge";
  entry.path = "/nowhere";
  entry.size = int64_t{8} << 30;
  const std::string header = TarHeader(entry, TarOptions());
  EXPECT_EQ(header.size(), 3u * 512);
  EXPECT_EQ(header[156], 'x');
  EXPECT_THAT(header, HasSubstr("19 size=8589934592\n"));
  entry.size -= 1;
  const std::string plain = TarHeader(entry, TarOptions());
  EXPECT_EQ(plain.size(), 512u);
  EXPECT_EQ(plain.substr(124, 11), "77777777777");
}

TEST(TarStreamTest, FilesThatChange) {
  const test::TempDir dir;
  ASSERT_TRUE(WriteFileAtomic(dir.Path("f"), "12345").ok());
  ContextEntry entry;
  entry.name = "f";
  entry.path = dir.Path("f");
  entry.size = 6;
  EXPECT_EQ(ReadAll({entry}, 100).status().code(),
            absl::StatusCode::kFailedPrecondition);
  // Longer: what was listed is sent.
  entry.size = 4;
  const std::string archive = ReadAll({entry}, 100).value();
  EXPECT_EQ(archive.substr(512, 5), std::string("1234\0", 5));
  entry.path = dir.Path("gone");
  const absl::Status status = ReadAll({entry}, 100).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("gone"));
  // A file that became a link is not followed.
  ASSERT_EQ(symlink(dir.Path("f").c_str(), dir.Path("l").c_str()), 0);
  entry.path = dir.Path("l");
  EXPECT_FALSE(ReadAll({entry}, 100).ok());
}

}  // namespace
}  // namespace elasticdl::docker
