// What .dockerignore leaves out.
#include "dockerignore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::docker {
namespace {

struct PatternCase {
  const char* pattern;
  const char* path;
  bool matches;
};

TEST(DockerIgnoreTest, Patterns) {
  const PatternCase kCases[] = {
      {"a", "a", true},
      {"a", "ab", false},
      {"*", "a", true},
      {"*", "a/b", false},
      {"*.md", "README.md", true},
      {"*.md", "docs/README.md", false},
      {"*/temp*", "somedir/temporary.txt", true},
      {"*/temp*", "a/b/temp", false},
      {"temp?", "tempa", true},
      {"temp?", "temp", false},
      {"temp?", "temp/", false},
      {"**", "a/b/c", true},
      {"**/x", "x", true},
      {"**/x", "a/b/x", true},
      {"**/x", "a/bx", false},
      {"**/*.o", "a/b.o", true},
      {"a/**", "a/b/c", true},
      {"a/**", "a", false},
      {"a/**/b", "a/b", true},
      {"a/**/b", "a/x/y/b", true},
      {"a/**/b", "a/xb", false},
      {"**/a/*.c", "z/a/m.c", true},
      {"**file", "dir/file", true},
      {"[a-c].x", "b.x", true},
      {"[a-c].x", "d.x", false},
      {"[^a-c].x", "d.x", true},
      {"[^a-c].x", "a.x", false},
      {"[]x]", "]", true},
      {"a\\*b", "a*b", true},
      {"a\\*b", "axb", false},
      {"a.b", "axb", false},
      {"a+(b)$", "a+(b)$", true},
  };
  for (const PatternCase& one : kCases) {
    EXPECT_EQ(MatchesPattern(one.pattern, one.path), one.matches)
        << one.pattern << " " << one.path;
  }
}

struct FileCase {
  const char* text;
  const char* path;
  bool excluded;
};

TEST(DockerIgnoreTest, Files) {
  const FileCase kCases[] = {
      {"", "a", false},
      {"# a\na", "a", true},
      {"#a", "#a", false},
      {" \n\t\na  \r\n", "a", true},
      {"\xEF\xBB\xBF"
       "a",
       "a", true},
      // A folder takes what is in it along.
      {"a", "a/b/c", true},
      {"a/", "a/b", true},
      {"/a", "a/b", true},
      {"./a/../b", "b", true},
      {"*", "a/b/c", true},
      // The last line that matches decides.
      {"*.md\n!README.md", "README.md", false},
      {"*.md\n!README.md", "x.md", true},
      {"*.md\n!README*.md\nREADME-secret.md", "README-secret.md", true},
      {"!README.md\n*.md", "README.md", true},
      {"a\n!a/b", "a/b/c", false},
      {"a\n!a/b", "a/c", true},
      {"*\n!**/*.cc", "x/y/z.cc", false},
      {"*\n!**/*.cc", "x/y/z.h", true},
      {"! a", "a", false},
      {".", "a", false},
      {"..", "a", false},
      {"**/__pycache__", "a/__pycache__/m.pyc", true},
  };
  for (const FileCase& one : kCases) {
    const absl::StatusOr<DockerIgnore> ignore = DockerIgnore::Parse(one.text);
    ASSERT_TRUE(ignore.ok()) << ignore.status();
    EXPECT_EQ(ignore->Excludes(one.path), one.excluded)
        << one.text << "\n-> " << one.path;
  }
}

TEST(DockerIgnoreTest, ExceptionsAreKnown) {
  EXPECT_FALSE(DockerIgnore::Parse("a\n#!b")->has_exceptions());
  EXPECT_TRUE(DockerIgnore::Parse("a\n!b")->has_exceptions());
}

TEST(DockerIgnoreTest, NoPattern) {
  for (const char* text : {"a\n[b", "a\n!", "a\n! \n"}) {
    const absl::Status status = DockerIgnore::Parse(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr(".dockerignore:2"));
  }
}

}  // namespace
}  // namespace elasticdl::docker
