// Checkpoints as the Python and Go ElasticDL left them: N Model files, no
// manifest.
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/test_snapshot.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/file.h"
#include "elasticdl/v1/tensor.pb.h"
#include "gtest/gtest.h"
#include "support/temp_dir.h"

namespace elasticdl::checkpoint {
namespace {

using ::elasticdl::test::TempDir;
using test::MustSave;
using test::TestSnapshot;
using test::Versions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void Write(const std::string& dir, const std::string& name,
           const std::string& data) {
  ASSERT_TRUE(MakeDirectories(dir).ok());
  std::ofstream(JoinPath(dir, name), std::ios::binary) << data;
}

// Model{version: 10, dense_parameters: {"dense/bias:0": float32[2] (1, -2)}},
// encoded by hand from the format's description.
std::string GoldenModel() {
  return absl::HexStringToBytes(
      "080a"  // version 10
      "1a24"  // dense_parameters entry, 36 bytes
      "0a0c"  // key, 12 bytes
      "64656e73652f626961733a30"
      "1214"      // value, 20 bytes
      "0801"      // dtype DT_FLOAT
      "1206"      // tensor_shape, 6 bytes
      "1204"      // dim, 4 bytes
      "08021200"  // size 2, name ""
      "2208"      // tensor_content, 8 bytes
      "0000803f000000c0");
}

std::string ModelWith(int version, const std::string& name, float value,
                      int64_t row_id) {
  v1::Model model;
  model.set_version(version);
  v1::Tensor& tensor = (*model.mutable_dense_parameters())[name];
  tensor.set_dtype(v1::DT_FLOAT);
  tensor.mutable_tensor_shape()->add_dim()->set_size(1);
  tensor.set_tensor_content(&value, sizeof(value));
  v1::IndexedSlices& table = (*model.mutable_embedding_tables())["table"];
  table.add_ids(row_id);
  *table.mutable_concat_tensors() = tensor;
  table.mutable_concat_tensors()->mutable_tensor_shape()->add_dim()->set_size(
      1);
  return model.SerializeAsString();
}

TEST(PythonLayoutTest, LoadsTheGoldenFile) {
  TempDir dir;
  Write(dir.Path("version-10"), "variables-0-of-1.ckpt", GoldenModel());
  v1::Model model;
  ASSERT_TRUE(model.ParseFromString(GoldenModel()));
  const absl::StatusOr<Loaded> loaded = Load(*Resolve(dir.path()));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->version, 10);
  EXPECT_FALSE(loaded->ledger.has_value());
  EXPECT_EQ(loaded->optimizer, "");
  const NamedTensor* bias = loaded->FindVariable("dense/bias:0");
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(Describe(*bias), "dense/bias:0 float32[2]");
  float values[2];
  ASSERT_EQ(bias->bytes.size(), sizeof(values));
  std::memcpy(values, bias->bytes.data(), sizeof(values));
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], -2.0f);
}

TEST(PythonLayoutTest, MergesAllFiles) {
  TempDir dir;
  for (int i = 0; i < 3; ++i) {
    Write(dir.Path("version-20"), absl::StrCat("variables-", i, "-of-3.ckpt"),
          ModelWith(20, absl::StrCat("w", i), static_cast<float>(i), i));
  }
  const absl::StatusOr<Loaded> loaded = Load(dir.Path("version-20"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->variables.size(), 3u);
  EXPECT_EQ(loaded->variables[2].name, "w2");
  ASSERT_EQ(loaded->embedding_tables.size(), 3u);
  EXPECT_THAT(loaded->embedding_tables[1].ids, ElementsAre(1));
}

TEST(PythonLayoutTest, IncompleteAndMixedVersionsAreSkipped) {
  TempDir dir;
  Write(dir.Path("version-10"), "variables-0-of-1.ckpt", GoldenModel());
  // One of two files.
  Write(dir.Path("version-20"), "variables-1-of-2.ckpt",
        ModelWith(20, "w", 1, 1));
  // Files of two partitions.
  Write(dir.Path("version-30"), "variables-0-of-1.ckpt", GoldenModel());
  Write(dir.Path("version-30"), "variables-1-of-2.ckpt", GoldenModel());
  // All there, but one is cut off: only reading shows it.
  Write(dir.Path("version-40"), "variables-0-of-1.ckpt",
        GoldenModel().substr(0, 30));
  // All there, but of different steps.
  Write(dir.Path("version-50"), "variables-0-of-2.ckpt",
        ModelWith(50, "a", 1, 1));
  Write(dir.Path("version-50"), "variables-1-of-2.ckpt",
        ModelWith(49, "b", 1, 2));
  EXPECT_THAT(Versions(dir.path()), ElementsAre(10, 40, 50));
  EXPECT_EQ(*Resolve(dir.path()), dir.Path("version-10"));
  const absl::Status status = Load(dir.Path("version-50")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("holds version 49"));
}

TEST(PythonLayoutTest, TheSameNameInTwoFilesIsAnError) {
  TempDir dir;
  for (int i = 0; i < 2; ++i) {
    Write(dir.Path("version-1"), absl::StrCat("variables-", i, "-of-2.ckpt"),
          ModelWith(1, "same", 1, 1));
  }
  const absl::Status status = Load(dir.Path("version-1")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'same'"));
}

TEST(PythonLayoutTest, CountsForPruning) {
  TempDir dir;
  Write(dir.Path("version-10"), "variables-0-of-1.ckpt", GoldenModel());
  MustSave(dir.path(), TestSnapshot(11).get(), 1);
  EXPECT_THAT(Versions(dir.path()), ElementsAre(11));
}

}  // namespace
}  // namespace elasticdl::checkpoint
