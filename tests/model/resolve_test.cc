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
  EXPECT_THAT(missing.status().message(), HasSubstr(dir_.Path("no/such.cc")));
  EXPECT_EQ(Resolve("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ResolveTest, FunctionNamesAreChecked) {
  EXPECT_EQ(ResolveFunction(dir_.path(), "loss", "my_loss")->symbol, "my_loss");
  const auto bad = ResolveFunction(dir_.path(), "loss", "system;rm");
  EXPECT_THAT(bad.status().message(), HasSubstr("--loss=system;rm"));
}

}  // namespace
}  // namespace elasticdl::model
