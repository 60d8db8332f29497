// IDX, CSV and PNG to RecordIO.
#include "elasticdl/data/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/put_file.h"
#include "elasticdl/common/file.h"
#include "elasticdl/data/example.h"
#include "elasticdl/data/reader.h"
#include "png_image.h"
#include "support/temp_dir.h"

namespace elasticdl::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ConvertTest : public testing::Test {
 protected:
  void SetUp() override { options_.output.directory = dir_.Path("out"); }

  std::string Put(const std::string& name, const std::string& bytes) {
    const std::string path = dir_.Path(name);
    EXPECT_TRUE(PutFile(path, bytes));
    return path;
  }

  std::vector<std::string> Records() {
    const auto reader = OpenDataReader(dir_.Path("out"), {});
    EXPECT_TRUE(reader.ok()) << reader.status();
    std::vector<std::string> records;
    const auto shards = *(*reader)->CreateShards();
    for (const Shard& shard : shards) {
      const auto batch = (*reader)->Read(shard.name, shard.begin, shard.end);
      for (const auto record : batch->records()) records.emplace_back(record);
    }
    return records;
  }

  test::TempDir dir_;
  ConvertOptions options_;
};

TEST_F(ConvertTest, IdxKeepsPixelsAndSplitsFiles) {
  std::string images("\0\0\x08\x03\0\0\0\5\0\0\0\1\0\0\0\2", 16);
  images += std::string("\0\1\2\3\4\5\6\7\xfe\xff", 10);
  const std::string labels("\0\0\x08\x01\0\0\0\5\0\1\2\3\4", 13);
  options_.output.records_per_file = 2;
  int64_t last = 0;
  options_.progress = [&](int64_t done, int64_t total) {
    last = done;
    EXPECT_EQ(total, 5);
  };
  const auto count =
      ConvertIdx(Put("i-idx3", images), Put("l-idx1", labels), options_);
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, 5);
  EXPECT_EQ(last, 5);
  EXPECT_THAT(*ListDirectory(dir_.Path("out")),
              ElementsAre("data-00000", "data-00001", "data-00002"));
  const auto records = Records();
  ASSERT_EQ(records.size(), 5U);
  const auto example = ExampleView::Parse(records[4]);
  EXPECT_THAT(*example->Find("image")->Floats(), ElementsAre(254, 255));
  EXPECT_EQ(*example->Int64("label"), 4);
  // A second conversion does not mix with the first.
  EXPECT_EQ(ConvertIdx(dir_.Path("i-idx3"), "", options_).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(ConvertTest, IdxWithAnotherNumberOfLabelsIsRefused) {
  const std::string images("\0\0\x08\x03\0\0\0\1\0\0\0\1\0\0\0\1\7", 17);
  const std::string labels("\0\0\x08\x01\0\0\0\2\0\1", 10);
  EXPECT_THAT(ConvertIdx(Put("i", images), Put("l", labels), options_)
                  .status()
                  .message(),
              HasSubstr("1 images but 2 labels"));
}

TEST_F(ConvertTest, CsvColumnsGetTheirKinds) {
  const std::string path =
      Put("t.csv", "id,score,name,target\n1,2.5,ann,0\n2,3,\"b,c\",1\n3,,,1\n");
  CsvConvertOptions csv;
  csv.label_column = "target";
  const auto count = ConvertCsv(path, csv, options_);
  ASSERT_TRUE(count.ok()) << count.status();
  const auto records = Records();
  ASSERT_EQ(records.size(), 3U);
  const auto second = ExampleView::Parse(records[1]);
  EXPECT_EQ(*second->Int64("id"), 2);
  EXPECT_EQ(*second->Float("score"), 3);
  EXPECT_EQ(*second->Bytes("name"), "b,c");
  EXPECT_EQ(*second->Int64("label"), 1);
  EXPECT_EQ(ExampleView::Parse(records[2])->Find("score"), nullptr);
}

TEST_F(ConvertTest, CsvErrorsNameTheRecord) {
  EXPECT_THAT(
      ConvertCsv(Put("t.csv", "1,2\n3\n"), {}, options_).status().message(),
      HasSubstr("t.csv: record 1: 1 fields, expected 2"));
  CsvConvertOptions csv;
  csv.label_column = "9";
  EXPECT_THAT(
      ConvertCsv(Put("u.csv", "1,2\n"), csv, options_).status().message(),
      HasSubstr("no label column '9'"));
}

// A picture of 4x4 grey pixels numbered from 0.
internal::PngImage Numbered() {
  internal::PngImage image{4, 4, 1, {}};
  for (uint8_t i = 0; i < 16; ++i) image.pixels.push_back(i);
  return image;
}

TEST_F(ConvertTest, PngTilesGoRowByRow) {
  const std::string picture = dir_.Path("p.png");
  ASSERT_TRUE(internal::WritePng(picture, Numbered()).ok());
  PngConvertOptions png{2, 2, false};
  const auto count =
      ConvertPngGrid({picture}, Put("l.json", "[5, 6,7]\n"), png, options_);
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, 3);  // the fourth tile has no label
  const auto records = Records();
  const auto second = ExampleView::Parse(records[1]);
  EXPECT_THAT(*second->Find("image")->Floats(), ElementsAre(2, 3, 6, 7));
  EXPECT_EQ(*second->Int64("label"), 6);
}

TEST_F(ConvertTest, PngRowsAsBytes) {
  const std::string picture = dir_.Path("p.png");
  ASSERT_TRUE(internal::WritePng(picture, Numbered()).ok());
  options_.images_as_bytes = true;
  const auto count =
      ConvertPngGrid({picture, picture}, "", {2, 2, true}, options_);
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, 8);
  const auto records = Records();
  EXPECT_EQ(*ExampleView::Parse(records[5])->Bytes("image"), "\4\5\6\7");
}

TEST_F(ConvertTest, PngThatDoesNotSplitIsRefused) {
  const std::string picture = dir_.Path("p.png");
  ASSERT_TRUE(internal::WritePng(picture, Numbered()).ok());
  EXPECT_THAT(
      ConvertPngGrid({picture}, "", {3, 3, false}, options_).status().message(),
      HasSubstr("does not split into tiles of 3x3"));
  EXPECT_EQ(
      ConvertPngGrid({Put("q.png", "no picture")}, "", {2, 2, false}, options_)
          .status()
          .code(),
      absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace elasticdl::data
