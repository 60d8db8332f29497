// OpenDataReader: which reader, and the RecordIO, IDX and synthetic ones.
#include "elasticdl/data/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "compression.h"
#include "data/put_file.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/data/example.h"
#include "elasticdl/data/recordio.h"
#include "support/temp_dir.h"

namespace elasticdl::data {
namespace {

using ::testing::HasSubstr;

class ReaderTest : public testing::Test {
 protected:
  void WriteRecordIo(const std::string& path, int first, int count) {
    auto writer = RecordIoWriter::Create(path, {Compressor::kSnappy, 64});
    for (int i = first; i < first + count; ++i) {
      ASSERT_TRUE((*writer)->Write("record" + std::to_string(i)).ok());
    }
    ASSERT_TRUE((*writer)->Close().ok());
  }
  void Put(const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(PutFile(dir_.Path(name), bytes));
  }

  test::TempDir dir_;
};

TEST_F(ReaderTest, FolderOfRecordIoFilesIsSorted) {
  WriteRecordIo(dir_.Path("data-00001"), 30, 5);
  WriteRecordIo(dir_.Path("data-00000"), 0, 30);
  WriteRecordIo(dir_.Path("data-00002"), 0, 0);  // no records, no shard
  Put(".hidden", "not data");
  Put("manifest.json", "{}");
  const auto reader = OpenDataReader(dir_.path(), {});
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto shards = *(*reader)->CreateShards();
  ASSERT_EQ(shards.size(), 2U);
  EXPECT_EQ(shards[0].name, dir_.Path("data-00000"));
  EXPECT_EQ(shards[0].end, 30);
  EXPECT_EQ(shards[1].end, 5);
  for (int begin = 0; begin <= 30; begin += 3) {
    const auto batch = (*reader)->Read(shards[0].name, begin, 30);
    ASSERT_TRUE(batch.ok());
    ASSERT_EQ(batch->records().size(), static_cast<size_t>(30 - begin));
    for (int i = begin; i < 30; ++i) {
      EXPECT_EQ(batch->records()[i - begin], "record" + std::to_string(i));
    }
  }
}

TEST_F(ReaderTest, BatchOutlivesTheReader) {
  WriteRecordIo(dir_.Path("f"), 0, 30);
  RecordBatch batch;
  {
    const auto reader = OpenDataReader(dir_.Path("f"), {});
    batch = *(*reader)->Read(dir_.Path("f"), 3, 25);
  }
  EXPECT_EQ(batch.records()[0], "record3");
  EXPECT_EQ(batch.records()[21], "record24");
}

TEST_F(ReaderTest, ReadsFromSeveralThreads) {
  WriteRecordIo(dir_.Path("f"), 0, 1000);
  const auto reader = OpenDataReader(dir_.Path("f"), {});
  ASSERT_TRUE(reader.ok());
  std::vector<int> wrong(4, 0);
  {
    std::vector<Thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back("read", [&, t] {
        for (int round = 0; round < 50; ++round) {
          const int begin = (round * 37 + t * 211) % 990;
          const auto batch = (*reader)->Read(dir_.Path("f"), begin, begin + 10);
          for (int i = 0; i < 10; ++i) {
            wrong[t] +=
                batch->records()[i] != "record" + std::to_string(begin + i);
          }
        }
      });
    }
  }
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST_F(ReaderTest, MissingAndEmptyAreToldApart) {
  const std::string missing = dir_.Path("nowhere");
  EXPECT_EQ(OpenDataReader(missing, {}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(OpenDataReader(missing, {}).status().message(),
              HasSubstr(missing));
  const auto empty = OpenDataReader(dir_.path(), {}).status();
  EXPECT_EQ(empty.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(empty.message(), HasSubstr(dir_.path()));
  Put("data", "");
  EXPECT_EQ(OpenDataReader(dir_.path(), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ReaderTest, TruncatedRecordIoNamesThePlace) {
  WriteRecordIo(dir_.Path("f"), 0, 30);
  const std::string bytes = ReadFile(dir_.Path("f")).value();
  Put("f", bytes.substr(0, bytes.size() - 1));
  const auto status = OpenDataReader(dir_.path(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(dir_.Path("f") + ": chunk 3 at "));
}

TEST_F(ReaderTest, ReaderTypeWins) {
  Put("rows", "a,1\nb,2\n");
  const auto reader =
      OpenDataReader(dir_.Path("rows"), {{"reader_type", "CSV"}});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*(*reader)->CreateShards())[0].end, 2);
  EXPECT_THAT(OpenDataReader(dir_.Path("rows"), {{"reader_type", "Foo"}})
                  .status()
                  .message(),
              HasSubstr("unknown reader_type 'Foo'"));
}

TEST_F(ReaderTest, IdxWithLabelsGivesExamples) {
  const std::string images("\0\0\x08\x03\0\0\0\2\0\0\0\1\0\0\0\2\1\2\3\xff",
                           20);
  const std::string labels("\0\0\x08\x01\0\0\0\2\7\x09", 10);
  std::string gzip;
  ASSERT_TRUE(internal::GzipEncode(images, gzip).ok());
  Put("train-images-idx3-ubyte.gz", gzip);
  Put("train-labels-idx1-ubyte", labels);
  const std::string path = dir_.Path("train-images-idx3-ubyte.gz");
  const auto reader = OpenDataReader(path, {});
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto batch = (*reader)->Read(path, 1, 2);
  ASSERT_TRUE(batch.ok());
  const auto example = ExampleView::Parse(batch->records()[0]);
  EXPECT_EQ(*example->Find("image")->Floats(), (std::vector<float>{3, 255}));
  EXPECT_EQ(*example->Int64("label"), 9);
  const auto raw = OpenDataReader(path, {{"raw", "true"}});
  EXPECT_EQ((*raw)->Read(path, 0, 1)->records()[0], "\1\2");
}

TEST_F(ReaderTest, BrokenIdxIsRefused) {
  Put("x-idx3-ubyte",
      std::string("\0\0\x08\x03\0\0\0\2\0\0\0\1\0\0\0\2\1\2\3", 19));
  EXPECT_EQ(OpenDataReader(dir_.Path("x-idx3-ubyte"), {}).status().code(),
            absl::StatusCode::kDataLoss);
  Put("x-idx3-ubyte", std::string("\0\0\x0d\x01\0\0\0\0", 8));
  EXPECT_EQ(OpenDataReader(dir_.Path("x-idx3-ubyte"), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ReaderTest, SyntheticIsTheSameEveryTime) {
  const std::string origin = "synthetic:records=10,bytes=33,shards=3,seed=5";
  const auto a = OpenDataReader(origin, {});
  const auto b = OpenDataReader(origin, {});
  ASSERT_TRUE(a.ok()) << a.status();
  const auto shards = *(*a)->CreateShards();
  ASSERT_EQ(shards.size(), 3U);
  EXPECT_EQ(shards[0].end + shards[1].end + shards[2].end, 10);
  std::set<std::string> seen;
  for (const Shard& shard : shards) {
    const auto whole = (*a)->Read(shard.name, 0, shard.end);
    for (int64_t i = 0; i < shard.end; ++i) {
      const auto one = (*b)->Read(shard.name, i, i + 1);
      EXPECT_EQ(one->records()[0], whole->records()[i]);
      EXPECT_EQ(one->records()[0].size(), 33U);
      seen.emplace(one->records()[0]);
    }
  }
  EXPECT_EQ(seen.size(), 10U);
}

TEST_F(ReaderTest, SyntheticExamplesAndBadParameters) {
  const auto reader =
      OpenDataReader("synthetic:records=4,image=12,classes=3", {});
  ASSERT_TRUE(reader.ok());
  const auto batch = (*reader)->Read("synthetic-0", 0, 4);
  for (const absl::string_view record : batch->records()) {
    const auto example = ExampleView::Parse(record);
    EXPECT_EQ(*example->Find("image")->size(), 12U);
    EXPECT_LT(*example->Int64("label"), 3);
  }
  for (const char* bad : {"synthetic:records=0", "synthetic:records=x",
                          "synthetic:rows=3", "synthetic:"}) {
    const auto status = OpenDataReader(bad, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), HasSubstr(bad));
  }
}

}  // namespace
}  // namespace elasticdl::data
