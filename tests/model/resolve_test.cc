// From --model_zoo and --model_def to files.
#include "resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::model {
namespace {

using ::testing::HasSubstr;

class ResolveTest : public ::testing::Test {
 protected:
  void Touch(const std::string& name) {
    const std::string path = dir_.Path(name);
    ASSERT_TRUE(MakeDirectories(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomic(path, "").ok());
  }
  absl::StatusOr<Definition> Resolve(const std::string& def) {
    LoadOptions options;
    options.model_zoo = dir_.path();
    options.model_def = def;
    return ResolveDefinition(options);
  }
  void Expect(const std::string& def, Kind kind, const std::string& path,
              const std::string& symbol) {
    const auto definition = Resolve(def);
    ASSERT_TRUE(definition.ok()) << definition.status();
    EXPECT_EQ(definition->kind, kind) << def;
    EXPECT_EQ(definition->path, dir_.Path(path)) << def;
    EXPECT_EQ(definition->symbol, symbol) << def;
  }

  test::TempDir dir_;
};

TEST_F(ResolveTest, DottedNameIsFileAndSymbol) {
  Touch("mnist/cnn.cc");
  Expect("mnist.cnn.custom_model", Kind::kSource, "mnist/cnn.cc",
         "custom_model");
  Expect("mnist.cnn.CustomModel", Kind::kSource, "mnist/cnn.cc", "CustomModel");
  Expect("mnist.cnn", Kind::kSource, "mnist/cnn.cc", "custom_model");
}

TEST_F(ResolveTest, PathsOfOldCommands) {
  Touch("mnist/cnn.cc");
  Expect("mnist/cnn.py", Kind::kSource, "mnist/cnn.cc", "custom_model");
  Expect("mnist/cnn.cc", Kind::kSource, "mnist/cnn.cc", "custom_model");
  Expect("mnist/cnn", Kind::kSource, "mnist/cnn.cc", "custom_model");
}

TEST_F(ResolveTest, ReadyBuiltAndTorchScript) {
  Touch("a/b.so");
  Touch("net.pt");
  Expect("a.b.custom_model", Kind::kLibrary, "a/b.so", "custom_model");
  Expect("a/b.so", Kind::kLibrary, "a/b.so", "custom_model");
  Expect("net.pt", Kind::kTorchScript, "net.pt", "");
  Expect(dir_.Path("net.pt"), Kind::kTorchScript, "net.pt", "");
}

TEST_F(ResolveTest, SourceComesBeforeALibrary) {
  Touch("a/b.so");
  Touch("a/b.cc");
  Expect("a.b.custom_model", Kind::kSource, "a/b.cc", "custom_model");
}

TEST_F(ResolveTest, ErrorsSayWhatWasLookedFor) {
  const auto missing = Resolve("no.such.custom_model");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.status().message(),
            "--model_def=no.such.custom_model: there is no file " +
                dir_.Path("no/such.cc") + " (--model_zoo=" + dir_.path() + ")");
  EXPECT_EQ(Resolve("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ResolveTest, ErrorsNameBothMeaningsOfAName) {
  EXPECT_THAT(Resolve("a.b").status().message(),
              HasSubstr("no file " + dir_.Path("a.cc") + " or " +
                        dir_.Path("a/b.cc") + " ("));
  EXPECT_THAT(Resolve("a/b.so").status().message(),
              HasSubstr("no file " + dir_.Path("a/b.so") + " ("));
  EXPECT_THAT(Resolve("custom_model").status().message(),
              HasSubstr("no file " + dir_.Path("custom_model.cc") + " ("));
}

TEST_F(ResolveTest, ErrorsNameTheZoo) {
  LoadOptions options;
  options.model_def = "a.custom_model";
  EXPECT_EQ(ResolveDefinition(options).status().message(),
            "--model_def=a.custom_model: there is no file a.cc; --model_zoo, "
            "the folder of the models, is not given");
  options.model_zoo = dir_.Path("missing");
  EXPECT_THAT(
      ResolveDefinition(options).status().message(),
      HasSubstr("; --model_zoo=" + options.model_zoo + " is not a folder"));
}

TEST_F(ResolveTest, ErrorsNameTheSameFileInOtherFolders) {
  Touch("mnist/cnn.cc");
  Touch("mnist/.old/cnn.cc");
  EXPECT_THAT(Resolve("cnn.custom_model").status().message(),
              HasSubstr("; did you mean --model_def=mnist.cnn.custom_model?"));
  EXPECT_THAT(Resolve("cnn.cnn.Net").status().message(),
              HasSubstr("; did you mean --model_def=mnist.cnn.Net?"));
  Touch("cifar10/cnn.cc");
  EXPECT_THAT(Resolve("cnn.custom_model").status().message(),
              HasSubstr("; did you mean --model_def=cifar10.cnn.custom_model "
                        "or --model_def=mnist.cnn.custom_model?"));
}

TEST_F(ResolveTest, FunctionNamesAreChecked) {
  EXPECT_EQ(ResolveFunction(dir_.path(), "loss", "my_loss")->symbol, "my_loss");
  const auto bad = ResolveFunction(dir_.path(), "loss", "system;rm");
  EXPECT_THAT(bad.status().message(), HasSubstr("--loss=system;rm"));
}

}  // namespace
}  // namespace elasticdl::model
