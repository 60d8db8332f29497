// Compiling into the cache, without libtorch.
#include "elasticdl/model/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "elasticdl/common/file.h"
#include "model/fake_toolchain.h"
#include "support/temp_dir.h"

namespace elasticdl::model {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class CompilerTest : public ::testing::Test {
 protected:
  CompilerTest() {
    options_.model_zoo = dir_.Path("zoo");
    options_.model_def = "a.net.custom_model";
    options_.cache_dir = dir_.Path("cache");
    options_.toolchain = test::MakeFakeToolchain(dir_.path());
    Write("a/net.cc", "int custom_model() { return 1; }\n");
  }

  void Write(const std::string& name, const std::string& content) {
    const std::string path = JoinPath(options_.model_zoo, name);
    ASSERT_TRUE(MakeDirectories(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomic(path, content).ok());
  }
  std::string MustCompile() {
    const auto path = Compile(options_);
    EXPECT_TRUE(path.ok()) << path.status();
    return path.value_or("");
  }

  elasticdl::test::TempDir dir_;
  LoadOptions options_;
};

TEST_F(CompilerTest, CompilesIntoTheCache) {
  const std::string path = MustCompile();
  EXPECT_TRUE(FileExists(path));
  EXPECT_EQ(path.find(options_.cache_dir), 0u);
  EXPECT_THAT(path, EndsWith(".so"));
}

TEST_F(CompilerTest, SecondTimeNeedsNoCompiler) {
  const std::string path = MustCompile();
  options_.toolchain.compiler = "/no/such/compiler";
  EXPECT_EQ(MustCompile(), path);
}

TEST_F(CompilerTest, KeyDependsOnContentNamesAndLocalIncludes) {
  Write("a/net.cc", "#include \"size.h\"\nint custom_model() { return N; }\n");
  Write("a/size.h", "#define N 1\n");
  const std::string first = MustCompile();
  Write("a/size.h", "#define N 2\n");
  const std::string second = MustCompile();
  options_.loss = "other_loss";
  const std::string third = MustCompile();
  options_.toolchain.flags.push_back("-O1");
  const std::string fourth = MustCompile();
  EXPECT_NE(first, second);
  EXPECT_NE(second, third);
  EXPECT_NE(third, fourth);
}

TEST_F(CompilerTest, KeyDoesNotDependOnWhereTheZooIs) {
  const std::string first = MustCompile();
  ASSERT_EQ(rename(options_.model_zoo.c_str(), dir_.Path("moved").c_str()), 0);
  options_.model_zoo = dir_.Path("moved");
  EXPECT_EQ(MustCompile(), first);
}

TEST_F(CompilerTest, AKilledCompilerIsNotTheModelsFault) {
  const std::string compiler = dir_.Path("c++");
  ASSERT_TRUE(WriteFileAtomic(compiler,
                              "#!/bin/sh\necho 'c++: fatal error: Killed "
                              "signal terminated program cc1plus' >&2\n"
                              "exit 1\n",
                              0755)
                  .ok());
  options_.toolchain.compiler = compiler;
  const auto path = Compile(options_);
  EXPECT_EQ(path.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(path.status().message(),
              HasSubstr("memory in --worker_resource_request"));
}

TEST_F(CompilerTest, ShowsTheCompilersError) {
  Write("a/net.cc", "int custom_model() { return wrong_name; }\n");
  const auto path = Compile(options_);
  ASSERT_EQ(path.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(path.status().message(), HasSubstr("a/net.cc does not compile"));
  EXPECT_THAT(path.status().message(), HasSubstr("net.cc:1:"));
  EXPECT_THAT(path.status().message(), HasSubstr("wrong_name"));
  EXPECT_THAT(path.status().message(), Not(HasSubstr("In file included")));
}

TEST_F(CompilerTest, CutsALongError) {
  std::string source;
  for (int i = 0; i < 100; ++i) {
    source += "int f" + std::to_string(i) + "() { return x; }\n";
  }
  Write("a/net.cc", source);
  const auto path = Compile(options_);
  EXPECT_LT(path.status().message().size(), 8000u);
  EXPECT_THAT(std::string(path.status().message()), EndsWith("..."));
}

TEST_F(CompilerTest, NamesAMissingCompiler) {
  options_.toolchain.compiler = "/no/such/compiler";
  EXPECT_THAT(Compile(options_).status().message(),
              HasSubstr("/no/such/compiler"));
}

TEST_F(CompilerTest, ConcurrentCallsGiveOneLibrary) {
  std::string paths[4];
  std::vector<std::thread> threads;
  for (std::string& path : paths) {
    threads.emplace_back([this, &path] { path = MustCompile(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& path : paths) EXPECT_EQ(path, paths[0]);
  const auto names = ListDirectory(options_.cache_dir);
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    EXPECT_THAT(name, Not(EndsWith(".tmp")));
  }
}

TEST_F(CompilerTest, TakesAReadyBuiltLibraryOfTheSameContent) {
  const std::string built = MustCompile();
  const std::string beside = JoinPath(options_.model_zoo, "a/net.so");
  ASSERT_TRUE(WriteFileAtomic(beside, ReadFile(built).value()).ok());
  options_.cache_dir = dir_.Path("other-cache");
  options_.toolchain.compiler = "/no/such/compiler";
  EXPECT_THAT(MustCompile(), EndsWith("a/net.so"));
  Write("a/net.cc", "int custom_model() { return 2; }\n");
  EXPECT_FALSE(Compile(options_).ok());
}

TEST_F(CompilerTest, FunctionsMayBeInOtherFilesOfTheZoo) {
  Write("common/losses.cc", "int my_loss() { return 1; }\n");
  options_.loss = "common.losses.my_loss";
  EXPECT_NE(MustCompile(), "");
  options_.loss = "common.nothing.my_loss";
  EXPECT_THAT(Compile(options_).status().message(),
              HasSubstr("common/nothing.cc"));
}

TEST(ToolchainTest, ReadsAFileAndReplacesTheRoot) {
  elasticdl::test::TempDir dir;
  const std::string folder = dir.Path("share/elasticdl");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(folder, "model_toolchain.txt"),
                              "# comment\ncompiler=g++\ncompiler_id=GNU 1\n"
                              "flag=-DX=1\ninclude=${root}/include\nlink=-lm\n")
                  .ok());
  const auto toolchain = FindToolchain(dir.Path("bin/elasticdl-worker"));
  ASSERT_TRUE(toolchain.ok()) << toolchain.status();
  EXPECT_EQ(toolchain->compiler, "g++");
  EXPECT_EQ(toolchain->compiler_id, "GNU 1");
  EXPECT_EQ(toolchain->flags, std::vector<std::string>{"-DX=1"});
  EXPECT_EQ(toolchain->include_dirs,
            std::vector<std::string>{dir.Path("include")});
  EXPECT_EQ(toolchain->link_flags, std::vector<std::string>{"-lm"});
}

TEST(ToolchainTest, RejectsAnUnknownKeyAndNamesAMissingFile) {
  elasticdl::test::TempDir dir;
  ASSERT_TRUE(WriteFileAtomic(dir.Path("t.txt"), "colour=red\n").ok());
  EXPECT_THAT(ReadToolchain(dir.Path("t.txt")).status().message(),
              HasSubstr("colour"));
  EXPECT_THAT(FindToolchain(dir.Path("bin/x")).status().message(),
              HasSubstr("model_toolchain.txt"));
}

}  // namespace
}  // namespace elasticdl::model
