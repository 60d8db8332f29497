// ExampleView and ExampleBuilder against Protocol Buffers.
#include "elasticdl/data/example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "elasticdl/v1/example.pb.h"

namespace elasticdl::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ExampleTest, ReadsWhatProtobufWrites) {
  v1::Example message;
  auto& features = *message.mutable_features()->mutable_feature();
  for (int i = 0; i < 784; ++i) {
    features["image"].mutable_float_list()->add_value(i * 0.5F);
  }
  features["label"].mutable_int64_list()->add_value(7);
  for (const int64_t v : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
    features["ids"].mutable_int64_list()->add_value(v);
  }
  features["name"].mutable_bytes_list()->add_value("cat");
  features["names"].mutable_bytes_list()->add_value("");
  features["names"].mutable_bytes_list()->add_value("dog");
  features["none"];
  const std::string record = message.SerializeAsString();

  const auto example = ExampleView::Parse(record);
  ASSERT_TRUE(example.ok()) << example.status();
  std::vector<float> image(784);
  ASSERT_TRUE(example->CopyFloats("image", absl::MakeSpan(image)).ok());
  EXPECT_EQ(image[783], 391.5F);
  EXPECT_EQ(*example->Int64("label"), 7);
  EXPECT_THAT(*example->Find("ids")->Int64s(),
              ElementsAre(0, -1, INT64_MIN, INT64_MAX));
  EXPECT_EQ(*example->Bytes("name"), "cat");
  EXPECT_THAT(*example->Find("names")->Bytes(), ElementsAre("", "dog"));
  EXPECT_EQ(example->Find("none")->kind(), FeatureKind::kNone);
  EXPECT_EQ(*example->Find("none")->size(), 0U);
  EXPECT_EQ(example->Find("missing"), nullptr);
}

TEST(ExampleTest, ProtobufReadsWhatTheBuilderWrites) {
  ExampleBuilder builder;
  builder.SetFloats("image", {1.5F, -2.0F});
  builder.SetInt64s("ids", {3, -4});
  builder.SetBytes("words", {"a", "", "b"});
  builder.SetInt64("label", 1);
  builder.SetInt64("label", 300);  // replaces
  builder.SetFloats("empty", {});
  v1::Example message;
  ASSERT_TRUE(message.ParseFromString(builder.Serialize()));
  const auto& features = message.features().feature();
  ASSERT_EQ(features.size(), 5U);
  EXPECT_THAT(features.at("image").float_list().value(),
              ElementsAre(1.5F, -2.0F));
  EXPECT_THAT(features.at("ids").int64_list().value(), ElementsAre(3, -4));
  EXPECT_THAT(features.at("words").bytes_list().value(),
              ElementsAre("a", "", "b"));
  EXPECT_THAT(features.at("label").int64_list().value(), ElementsAre(300));
  EXPECT_TRUE(features.at("empty").has_float_list());
}

TEST(ExampleTest, BuilderIsUsedAgainAfterClear) {
  ExampleBuilder builder;
  builder.SetInt64("a", 1);
  builder.Clear();
  builder.SetFloat("b", 2);
  const std::string record = builder.Serialize();
  const auto example = ExampleView::Parse(record);
  EXPECT_EQ(example->Find("a"), nullptr);
  EXPECT_EQ(*example->Float("b"), 2);
}

// TensorFlow's own writers pack; older ones and other languages may not.
TEST(ExampleTest, ReadsUnpackedValues) {
  const std::string record(
      "\x0a\x26"  // features
      "\x0a\x14\x0a\x01"
      "f\x12\x0f\x12\x0d"         // f: float list
      "\x0d\x00\x00\x80\x3f"      //   1.0 alone
      "\x0a\x04\x00\x00\x00\x40"  //   2.0 packed
      "\x10\x01"                  //   unknown field
      "\x0a\x0e\x0a\x01"
      "i\x12\x09\x1a\x07"              // i: int64 list
      "\x08\x05\x0a\x03\x01\xac\x02",  //   5, then 1 and 300 packed
      40);
  const auto example = ExampleView::Parse(record);
  ASSERT_TRUE(example.ok()) << example.status();
  EXPECT_THAT(*example->Find("f")->Floats(), ElementsAre(1.0F, 2.0F));
  EXPECT_THAT(*example->Find("i")->Int64s(), ElementsAre(5, 1, 300));
}

TEST(ExampleTest, LaterListOfAnotherKindReplaces) {
  v1::Example first;
  v1::Feature a, b;
  a.mutable_int64_list()->add_value(1);
  b.mutable_float_list()->add_value(2);
  // Concatenated messages merge; of a oneof the last remains.
  const std::string value =
      a.SerializeAsString() + b.SerializeAsString() + b.SerializeAsString();
  const auto field = [](char tag, const std::string& bytes) {
    return std::string(1, tag) + static_cast<char>(bytes.size()) + bytes;
  };
  const std::string record =
      field(10, field(10, field(10, "x") + field(18, value)));
  v1::Example message;
  ASSERT_TRUE(message.ParseFromString(record));
  EXPECT_EQ(message.features().feature().at("x").float_list().value_size(), 2);
  const auto example = ExampleView::Parse(record);
  ASSERT_TRUE(example.ok());
  EXPECT_THAT(*example->Find("x")->Floats(), ElementsAre(2, 2));
}

TEST(ExampleTest, ErrorsNameTheFeature) {
  ExampleBuilder builder;
  builder.SetFloats("image", {1, 2, 3});
  const std::string record = builder.Serialize();
  const auto example = ExampleView::Parse(record);
  std::vector<float> four(4), two(2);
  EXPECT_THAT(example->CopyFloats("image", absl::MakeSpan(four)).message(),
              HasSubstr("'image' has 3 values, not 4"));
  EXPECT_THAT(example->CopyFloats("image", absl::MakeSpan(two)).message(),
              HasSubstr("'image' has 3 values, not 2"));
  EXPECT_THAT(example->Int64("image").status().message(),
              HasSubstr("'image' is float, not int64"));
  EXPECT_EQ(example->Int64("label").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(example->Int64("label").status().message(),
              HasSubstr("no feature 'label'; it has 'image'"));
}

TEST(ExampleTest, DebugStringCutsLongLists) {
  ExampleBuilder builder;
  builder.SetFloats("image", {1, 2, 3});
  builder.SetBytes("name", "a\x01");
  const std::string record = builder.Serialize();
  EXPECT_EQ(ExampleView::Parse(record)->DebugString(2),
            "image: float[3] {1, 2, … 1 more}  name: bytes[1] {\"a\\x01\"}");
}

// Uses everything of a view; results do not matter.
void Touch(absl::string_view record) {
  const auto example = ExampleView::Parse(record);
  if (!example.ok()) return;
  for (const FeatureView& feature : example->features()) {
    (void)feature.size();
    (void)feature.Floats();
    (void)feature.Int64s();
    (void)feature.Bytes();
    (void)feature.BytesValue();
    (void)feature.Int64();
  }
  (void)example->DebugString();
}

TEST(ExampleTest, RandomAndDamagedBytesNeverCrash) {
  const unsigned seed = testing::UnitTest::GetInstance()->random_seed() + 5;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  ExampleBuilder builder;
  builder.SetFloats("image", {1, 2, 3, 4});
  builder.SetInt64s("ids", {1, 300, -7});
  builder.SetBytes("words", {"abc", "d"});
  const std::string good = builder.Serialize();
  for (int round = 0; round < 20000; ++round) {
    // In memory of exactly this size, so that sanitizers see an overrun.
    std::vector<char> bytes(random() % 64);
    for (char& c : bytes) c = static_cast<char>(random() % 32);
    Touch({bytes.data(), bytes.size()});
    bytes.assign(good.begin(), good.end() - random() % 4);
    bytes[random() % bytes.size()] = static_cast<char>(random());
    Touch({bytes.data(), bytes.size()});
  }
}

TEST(ExampleTest, EveryPrefixOfARecordIsHandled) {
  ExampleBuilder builder;
  builder.SetInt64s("ids", {1, 300, -7});
  const std::string good = builder.Serialize();
  for (size_t size = 1; size < good.size(); ++size) {
    EXPECT_EQ(ExampleView::Parse(good.substr(0, size)).status().code(),
              absl::StatusCode::kDataLoss);
  }
  EXPECT_TRUE(ExampleView::Parse("").ok());
}

}  // namespace
}  // namespace elasticdl::data
