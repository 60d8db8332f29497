// Which files a build sends.
#include "elasticdl/docker/context.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::docker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ContextTest : public ::testing::Test {
 protected:
  ContextTest() {
    options_.folder = dir_.Path("zoo");
    options_.dockerfile = dir_.Path("zoo/Dockerfile");
    Write("Dockerfile", "FROM a\n");
  }
  void Write(const std::string& name, const std::string& text) {
    const std::string path = dir_.Path("zoo/" + name);
    ASSERT_TRUE(MakeDirectories(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomic(path, text).ok());
  }
  std::vector<std::string> Names() {
    const absl::StatusOr<BuildContext> context = ReadContext(options_);
    EXPECT_TRUE(context.ok()) << context.status();
    std::vector<std::string> names;
    if (!context.ok()) return names;
    for (const ContextEntry& entry : context->entries) {
      names.push_back(entry.name);
    }
    return names;
  }
  std::string Hash() {
    return HashContext(ReadContext(options_).value()).value();
  }

  const test::TempDir dir_;
  ContextOptions options_;
};

TEST_F(ContextTest, FoldersStandBeforeTheirFiles) {
  Write("b/c/d", "1");
  Write("a", "22");
  EXPECT_THAT(Names(), ElementsAre("Dockerfile", "a", "b", "b/c", "b/c/d"));
  const BuildContext context = ReadContext(options_).value();
  EXPECT_EQ(context.dockerfile, "Dockerfile");
  EXPECT_EQ(context.num_files, 3);
  EXPECT_EQ(context.bytes, 7 + 2 + 1);
}

TEST_F(ContextTest, IgnoredFilesStayAtHome) {
  Write(".dockerignore", "*\n!keep\nkeep/secret\n");
  Write("keep/a", "");
  Write("keep/secret/b", "");
  Write("drop/c", "");
  // Dockerfile and .dockerignore are sent although they are excluded.
  EXPECT_THAT(Names(),
              ElementsAre(".dockerignore", "Dockerfile", "keep", "keep/a"));
}

TEST_F(ContextTest, ExceptionsBelowExcludedFolders) {
  Write(".dockerignore", "deep\n!deep/er/yes\n!**/*.cc");
  Write("deep/er/yes", "");
  Write("deep/er/no", "");
  Write("deep/other/no", "");
  Write("deep/code/m.cc", "");
  EXPECT_THAT(Names(),
              ElementsAre(".dockerignore", "Dockerfile", "deep", "deep/code",
                          "deep/code/m.cc", "deep/er", "deep/er/yes"));
}

TEST_F(ContextTest, DockerfileInAnExcludedFolder) {
  Write(".dockerignore", "build");
  Write("build/Dockerfile", "FROM b\n");
  Write("build/x", "");
  options_.dockerfile = dir_.Path("zoo/build/Dockerfile");
  EXPECT_THAT(Names(), ElementsAre(".dockerignore", "Dockerfile", "build",
                                   "build/Dockerfile"));
  EXPECT_EQ(ReadContext(options_)->dockerfile, "build/Dockerfile");
}

TEST_F(ContextTest, DockerfileFromElsewhereIsHidden) {
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("Other"), "FROM other\n").ok());
  options_.dockerfile = dir_.Path("Other");
  const BuildContext context = ReadContext(options_).value();
  EXPECT_THAT(context.dockerfile, StartsWith(".dockerfile."));
  EXPECT_THAT(Names(),
              ElementsAre("Dockerfile", ".dockerignore", context.dockerfile));
  EXPECT_EQ(context.entries[1].content,
            "\n" + context.dockerfile + "\n.dockerignore\n");
  EXPECT_EQ(context.entries[2].content, "FROM other\n");

  // The user's own rules come first, and .dockerignore stays visible.
  Write(".dockerignore", "x");
  const BuildContext ignoring = ReadContext(options_).value();
  ASSERT_EQ(ignoring.entries.size(), 3u);
  EXPECT_EQ(ignoring.entries[1].content, "x\n" + context.dockerfile + "\n");
}

TEST_F(ContextTest, LinksStayLinks) {
  ASSERT_EQ(symlink("/etc", dir_.Path("zoo/folder").c_str()), 0);
  ASSERT_EQ(symlink("nowhere", dir_.Path("zoo/broken").c_str()), 0);
  ASSERT_EQ(mkfifo(dir_.Path("zoo/pipe").c_str(), 0600), 0);
  const BuildContext context = ReadContext(options_).value();
  ASSERT_THAT(Names(), ElementsAre("Dockerfile", "broken", "folder"));
  EXPECT_EQ(context.entries[2].type, ContextEntry::Type::kLink);
  EXPECT_EQ(context.entries[2].target, "/etc");
}

TEST_F(ContextTest, WhatIsMissingIsNamed) {
  options_.dockerfile = dir_.Path("zoo/Nofile");
  absl::Status status = ReadContext(options_).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("zoo/Nofile"));
  options_.folder = dir_.Path("nozoo");
  status = ReadContext(options_).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("nozoo"));
}

TEST_F(ContextTest, UnreadableFileIsNamed) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  Write("secret", "");
  ASSERT_EQ(chmod(dir_.Path("zoo/secret").c_str(), 0), 0);
  const absl::Status status = ReadContext(options_).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("zoo/secret"));
}

TEST_F(ContextTest, HashIsOfTheContent) {
  Write("a", "1");
  const std::string hash = Hash();
  EXPECT_EQ(hash.size(), 64u);
  const timespec times[2] = {{1, 0}, {2, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, dir_.Path("zoo/a").c_str(), times, 0), 0);
  EXPECT_EQ(Hash(), hash);
  ASSERT_EQ(chmod(dir_.Path("zoo/a").c_str(), 0755), 0);
  const std::string executable = Hash();
  EXPECT_NE(executable, hash);
  Write("a", "2");
  EXPECT_NE(Hash(), hash);
  Write("a", "1");
  EXPECT_EQ(Hash(), hash);
  Write("b", "");
  EXPECT_NE(Hash(), hash);
  options_.dockerfile_text = "FROM x\n";
  const std::string generated = Hash();
  options_.dockerfile_text = "FROM y\n";
  EXPECT_NE(Hash(), generated);
}

}  // namespace
}  // namespace elasticdl::docker
