// The light look at sources.
#include "source_scan.h"

#include <gtest/gtest.h>

#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::model {
namespace {

TEST(SourceScanTest, StripsCommentsAndKeepsLines) {
  EXPECT_EQ(StripComments("a // b\nc /* d\ne */ f"), "a \nc \n f");
  EXPECT_EQ(StripComments("// unfinished"), "");
  EXPECT_EQ(StripComments("/* unfinished"), "");
}

TEST(SourceScanTest, FindsClasses) {
  EXPECT_TRUE(DefinesClass("struct Net : torch::nn::Module {", "Net"));
  EXPECT_TRUE(DefinesClass("class Net final\n{", "Net"));
  EXPECT_TRUE(DefinesClass("TORCH_MODULE(Net);", "Net"));
  EXPECT_FALSE(DefinesClass("struct Net;", "Net"));
  EXPECT_FALSE(DefinesClass("struct Network {", "Net"));
  EXPECT_FALSE(DefinesClass("// struct Net {", "Net"));
}

TEST(SourceScanTest, FollowsLocalIncludesOnce) {
  test::TempDir dir;
  ASSERT_TRUE(MakeDirectories(dir.Path("inc/elasticdl")).ok());
  ASSERT_TRUE(MakeDirectories(dir.Path("zoo")).ok());
  const auto write = [&](const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(dir.Path(name), text).ok());
  };
  write("zoo/a.cc",
        "#include <elasticdl/x.h>\n#include <vector>\n#include \"b.h\"\n"
        "  #  include \"c.h\"\n// #include \"never.h\"\n");
  write("zoo/b.h", "#include \"a.cc\"\n");
  write("zoo/c.h", "#include \"missing.h\"\n");
  write("inc/elasticdl/x.h", "");
  const auto files = ReadWithIncludes(dir.Path("zoo/a.cc"), {dir.Path("zoo")},
                                      {dir.Path("inc")});
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 4u);
  EXPECT_EQ((*files)[1].path, dir.Path("inc/elasticdl/x.h"));
}

}  // namespace
}  // namespace elasticdl::model
