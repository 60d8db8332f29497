// RecordIO files: golden bytes, both variants, all compressors, ranges.
#include "elasticdl/data/recordio.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <snappy.h>

#include <random>

#include "compression.h"
#include "data/put_file.h"
#include "data/recordio_files.h"
#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Hex(const char* text) {
  std::string out;
  for (const char* p = text; *p != '\0'; ++p) {
    if (*p == ' ') continue;
    out.push_back(static_cast<char>(std::stoi(std::string(p, 2), nullptr, 16)));
    ++p;
  }
  return out;
}

class RecordIoTest : public testing::Test {
 protected:
  std::string Put(const std::string& bytes) {
    const std::string path = dir_.Path("file");
    EXPECT_TRUE(PutFile(path, bytes));
    return path;
  }

  std::vector<std::string> Scan(const std::string& path, int64_t begin = 0,
                                int64_t count = -1) {
    auto file = RecordIoFile::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    std::vector<std::string> records;
    if (!file.ok()) return records;
    RecordIoScanner scanner(*file, begin, count);
    while (scanner.Next()) records.emplace_back(scanner.record());
    EXPECT_TRUE(scanner.status().ok()) << scanner.status();
    return records;
  }

  std::string WriteRecords(const std::vector<std::string>& records,
                           RecordIoWriter::Options options) {
    const std::string path = dir_.Path("written");
    auto writer = RecordIoWriter::Create(path, options);
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (const std::string& record : records) {
      EXPECT_TRUE((*writer)->Write(record).ok());
    }
    EXPECT_TRUE((*writer)->Close().ok());
    return path;
  }

  test::TempDir dir_;
};

const std::vector<std::string> kRecords = {"hello", "", "world!"};

// The bytes below were made by hand: magic, CRC-32 of the payload, compressor,
// payload size, records; then length and bytes of each record.
TEST_F(RecordIoTest, WritesTheSpecifiedBytes) {
  const std::string path =
      WriteRecords(kRecords, {Compressor::kNone, 32 << 20});
  EXPECT_EQ(ReadFile(path).value(),
            Hex("04030201 6fefe32b 00000000 17000000 03000000"
                "05000000 68656c6c6f 00000000 06000000 776f726c6421"));
}

// Magic, records, CRC-32C, compressor, payload size.
TEST_F(RecordIoTest, ReadsTheSpecifiedBytesOfThePythonVariant) {
  const std::string path =
      Put(Hex("04030201 03000000 40259396 01000000 17000000"
              "05000000 68656c6c6f 00000000 06000000 776f726c6421"));
  EXPECT_THAT(Scan(path), ElementsAre("hello", "", "world!"));
}

// What the Go writer makes of one record "a": stream identifier, a raw frame
// with the length, a raw frame with the record, each with a masked CRC-32C.
TEST_F(RecordIoTest, ReadsGoFileWithTwoSnappyFramesPerRecord) {
  const std::string path =
      Put(Hex("04030201 2f35940a 01000000 1f000000 01000000"
              "ff060000 734e61507059"
              "01080000 1d158265 01000000"
              "01050000 786ee428 61"));
  EXPECT_THAT(Scan(path), ElementsAre("a"));
}

TEST_F(RecordIoTest, ReadsFramesThatAreCompressedPaddedOrSkippable) {
  const std::string record(1000, 'x');
  const std::string raw = RawPayload({record});
  std::string block;
  snappy::Compress(raw.data(), raw.size(), &block);
  const uint32_t crc = SlowCrc32c(raw);
  const uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8;
  const std::string id = Hex("ff060000 734e61507059");
  const std::string payload =
      id + Hex("fe020000 0000") + Hex("80010000 07") + id + std::string(1, 0) +
      Le32(static_cast<uint32_t>(block.size() + 4)).substr(0, 3) +
      Le32(masked) + block;
  EXPECT_THAT(Scan(Put(GoChunk(payload, 1, 1))), ElementsAre(record));
}

TEST_F(RecordIoTest, ReadsAllCompressorsOfBothVariants) {
  const std::string raw = RawPayload(kRecords);
  std::string block, gzip, frames;
  snappy::Compress(raw.data(), raw.size(), &block);
  ASSERT_TRUE(internal::GzipEncode(raw, gzip).ok());
  internal::SnappyFramesEncode(raw, frames);
  const std::vector<std::pair<std::string, RecordIoVariant>> files = {
      {GoChunk(raw, 0, 3), RecordIoVariant::kGo},
      {GoChunk(frames, 1, 3), RecordIoVariant::kGo},
      {GoChunk(gzip, 2, 3), RecordIoVariant::kGo},
      {PythonChunk(raw, 1, 3), RecordIoVariant::kPython},
      {PythonChunk(block, 2, 3), RecordIoVariant::kPython},
      {PythonChunk(gzip, 3, 3), RecordIoVariant::kPython}};
  for (const auto& [bytes, variant] : files) {
    const std::string path = Put(bytes + bytes);
    EXPECT_EQ((*RecordIoFile::Open(path))->variant(), variant);
    EXPECT_THAT(Scan(path),
                ElementsAre("hello", "", "world!", "hello", "", "world!"));
  }
}

TEST_F(RecordIoTest, ReadsGzipOfSeveralMembers) {
  std::string gzip;
  ASSERT_TRUE(internal::GzipEncode(RawPayload({"one"}), gzip).ok());
  ASSERT_TRUE(internal::GzipEncode(RawPayload({"two"}), gzip).ok());
  EXPECT_THAT(Scan(Put(GoChunk(gzip, 2, 2))), ElementsAre("one", "two"));
}

TEST_F(RecordIoTest, EmptyFileHasNoRecords) {
  const std::string path = Put("");
  EXPECT_THAT(Scan(path), ElementsAre());
  EXPECT_EQ((*RecordIoFile::Open(path))->num_records(), 0);
}

TEST_F(RecordIoTest, RoundTripsRandomRecordsInManyChunks) {
  std::mt19937 random(11);
  std::vector<std::string> records(500);
  for (std::string& record : records) {
    record.resize(random() % 400);
    // Half of them compressible.
    for (char& c : record) c = static_cast<char>(random() % 2 ? 'a' : random());
  }
  records[17] = std::string(70000, 'z');  // longer than a snappy frame
  for (const auto compressor :
       {Compressor::kNone, Compressor::kSnappy, Compressor::kGzip}) {
    const std::string path = WriteRecords(records, {compressor, 80000});
    const auto file = RecordIoFile::Open(path);
    ASSERT_TRUE(file.ok());
    EXPECT_GE((*file)->chunks().size(), 2U);
    EXPECT_EQ((*file)->num_records(), 500);
    EXPECT_EQ(Scan(path), records);
  }
}

TEST_F(RecordIoTest, ScansEveryRange) {
  std::vector<std::string> records;
  for (int i = 0; i < 23; ++i) records.push_back(std::to_string(1000 + i));
  // 16 bytes: four records per chunk.
  const std::string path = WriteRecords(records, {Compressor::kSnappy, 16});
  ASSERT_EQ((*RecordIoFile::Open(path))->chunks().size(), 6U);
  for (int begin = -1; begin <= 24; ++begin) {
    for (int count = -1; count <= 25; ++count) {
      const size_t first = std::min<size_t>(std::max(begin, 0), 23);
      const size_t last = count < 0 ? 23 : std::min<size_t>(first + count, 23);
      EXPECT_EQ(Scan(path, begin, count),
                std::vector<std::string>(records.begin() + first,
                                         records.begin() + last))
          << begin << " " << count;
    }
  }
}

TEST_F(RecordIoTest, SkipsChunksWithoutRecords) {
  const std::string empty = GoChunk("", 0, 0);
  const std::string one = GoChunk(RawPayload({"x"}), 0, 1);
  const std::string path = Put(empty + one + empty + empty + one + empty);
  EXPECT_THAT(Scan(path), ElementsAre("x", "x"));
  EXPECT_THAT(Scan(path, 1, 1), ElementsAre("x"));
}

TEST_F(RecordIoTest, UncompressedRecordsPointIntoTheMapping) {
  const std::string path = WriteRecords(kRecords, {Compressor::kNone, 1024});
  const auto file = *RecordIoFile::Open(path);
  const auto first = file->ReadChunk(0);
  const auto second = file->ReadChunk(0);
  EXPECT_EQ(first->records[0].data(), second->records[0].data());
}

TEST_F(RecordIoTest, ChunkOutlivesItsFile) {
  const std::string path = WriteRecords(kRecords, {Compressor::kSnappy, 1024});
  DecodedChunk chunk;
  {
    const auto file = *RecordIoFile::Open(path);
    chunk = *file->ReadChunk(0);
  }
  EXPECT_EQ(chunk.records[2], "world!");
}

TEST_F(RecordIoTest, WriterRefusesARecordAsLargeAsAChunk) {
  auto writer = RecordIoWriter::Create(dir_.Path("f"), {Compressor::kNone, 10});
  EXPECT_TRUE((*writer)->Write("123456789").ok());
  const absl::Status status = (*writer)->Write("1234567890");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("record 1 has 10 bytes"));
}

TEST_F(RecordIoTest, FileAppearsOnCloseOnly) {
  const std::string path = dir_.Path("f");
  {
    auto writer = RecordIoWriter::Create(path, {});
    ASSERT_TRUE((*writer)->Write("x").ok());
    EXPECT_FALSE(FileExists(path));
  }
  EXPECT_THAT(*ListDirectory(dir_.path()), ElementsAre());
}

TEST_F(RecordIoTest, MissingFileIsNotFoundByName) {
  const auto file = RecordIoFile::Open(dir_.Path("none"));
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(file.status().message(), HasSubstr(dir_.Path("none")));
}

}  // namespace
}  // namespace elasticdl::data
