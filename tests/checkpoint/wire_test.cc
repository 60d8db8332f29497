// Our encoding against Protocol Buffers', and hostile bytes.
#include "wire.h"

#include <random>
#include <string>

#include "checkpoint/test_snapshot.h"
#include "elasticdl/v1/tensor.pb.h"
#include "gtest/gtest.h"

namespace elasticdl::checkpoint::internal {
namespace {

using ::testing::HasSubstr;

std::string Encode(const Snapshot& snapshot) {
  std::string bytes = EncodeModelVersion(snapshot.version);
  for (const NamedTensor& tensor : snapshot.variables) {
    bytes += EncodeTensorHeader(tensor);
    bytes.append(tensor.bytes.data(), tensor.bytes.size());
  }
  return bytes;
}

TEST(WireTest, ProtocolBuffersReadsWhatWeWrite) {
  const test::TestSnapshot snapshot(77);
  v1::Model model;
  ASSERT_TRUE(model.ParseFromString(Encode(snapshot.get())));
  EXPECT_EQ(model.version(), 77);
  ASSERT_EQ(model.dense_parameters_size(),
            static_cast<int>(snapshot.get().variables.size()));
  for (const NamedTensor& tensor : snapshot.get().variables) {
    const v1::Tensor& read = model.dense_parameters().at(tensor.name);
    EXPECT_EQ(read.dtype(), tensor.dtype);
    ASSERT_EQ(read.tensor_shape().dim_size(),
              static_cast<int>(tensor.shape.size()));
    for (int i = 0; i < read.tensor_shape().dim_size(); ++i) {
      EXPECT_EQ(read.tensor_shape().dim(i).size(), tensor.shape[i]);
    }
    EXPECT_EQ(read.tensor_content(),
              std::string(tensor.bytes.begin(), tensor.bytes.end()));
  }
}

TEST(WireTest, ReadsWhatProtocolBuffersWrites) {
  v1::Model model;
  model.set_version(9);
  v1::Tensor& dense = (*model.mutable_dense_parameters())["dense"];
  dense.set_dtype(v1::DT_INT16);
  dense.mutable_tensor_shape()->add_dim()->set_size(2);
  dense.set_tensor_content("abcd");
  v1::IndexedSlices& table = (*model.mutable_embedding_tables())["table"];
  for (const int64_t id : {5, 300, -1}) table.add_ids(id);
  table.mutable_concat_tensors()->set_dtype(v1::DT_FLOAT);
  table.mutable_concat_tensors()->mutable_tensor_shape()->add_dim()->set_size(
      3);
  table.mutable_concat_tensors()->mutable_tensor_shape()->add_dim()->set_size(
      1);
  table.mutable_concat_tensors()->set_tensor_content("abcdefghijkl");
  model.add_embedding_table_infos()->set_name("table");
  const std::string bytes = model.SerializeAsString();
  const absl::StatusOr<ModelView> view = ParseModel(bytes, "f");
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->version, 9);
  ASSERT_EQ(view->dense_parameters.size(), 1u);
  EXPECT_EQ(Describe(view->dense_parameters[0]), "dense int16[2]");
  ASSERT_EQ(view->embedding_tables.size(), 1u);
  EXPECT_EQ(view->embedding_tables[0].name, "table");
  EXPECT_THAT(view->embedding_tables[0].ids,
              ::testing::ElementsAre(5, 300, -1));
  EXPECT_EQ(Describe(view->embedding_tables[0].rows), "table float32[3,1]");
}

TEST(WireTest, RefusesWhatDoesNotFit) {
  test::TestSnapshot snapshot(1);
  NamedTensor& tensor = snapshot.get().variables[0];
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{999}, std::vector<int64_t>{-1000},
        std::vector<int64_t>{int64_t{1} << 62, 8}}) {
    tensor.shape = shape;
    const std::string bytes = Encode(snapshot.get());
    const absl::Status status = ParseModel(bytes, "file-x").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr("file-x: offset "));
  }
  tensor.shape = {1000};
  tensor.dtype = static_cast<v1::DataType>(99);
  EXPECT_EQ(ParseModel(Encode(snapshot.get()), "f").status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(WireTest, SurvivesTruncationAndNoise) {
  const std::string bytes = Encode(test::TestSnapshot(3, 20).get());
  for (size_t size = 0; size < bytes.size(); ++size) {
    // A copy, so that a sanitizer sees a read behind the end.
    const std::string cut(bytes, 0, size);
    ParseModel(cut, "f").status().IgnoreError();
  }
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 3000; ++i) {
    std::string noisy = bytes;
    for (int k = 0; k < 3; ++k) {
      noisy[random() % noisy.size()] = static_cast<char>(random());
    }
    const absl::StatusOr<ModelView> view = ParseModel(noisy, "f");
    if (!view.ok()) {
      ASSERT_EQ(view.status().code(), absl::StatusCode::kDataLoss);
      continue;
    }
    for (const NamedTensor& tensor : view->dense_parameters) {
      ASSERT_EQ(static_cast<int64_t>(tensor.bytes.size()),
                ExpectedBytes(tensor));
    }
  }
}

}  // namespace
}  // namespace elasticdl::checkpoint::internal
