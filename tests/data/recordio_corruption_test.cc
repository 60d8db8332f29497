// Damaged RecordIO files: an error with the place, the records before it, never
// a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "compression.h"
#include "data/put_file.h"
#include "data/recordio_files.h"
#include "elasticdl/common/file.h"
#include "elasticdl/data/inspect.h"
#include "elasticdl/data/recordio.h"
#include "support/temp_dir.h"

namespace elasticdl::data {
namespace {

using ::testing::HasSubstr;

class RecordIoCorruptionTest : public testing::Test {
 protected:
  void SetUp() override { path_ = dir_.Path("file"); }

  // Four records to a chunk, five chunks.
  std::string MakeFile(Compressor compressor) {
    auto writer = RecordIoWriter::Create(path_, {compressor, 64});
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE((*writer)->Write(Record(i)).ok());
    }
    EXPECT_TRUE((*writer)->Close().ok());
    return ReadFile(path_).value();
  }

  static std::string Record(int i) {
    return "record " + std::to_string(1000 + i) + "aaaaa";
  }

  struct Result {
    std::vector<std::string> records;
    absl::Status status;
  };

  // Reads what can be read.
  Result Salvage(const std::string& bytes) {
    EXPECT_TRUE(PutFile(path_, bytes));
    const auto file = RecordIoFile::Open(path_, {/*salvage=*/true});
    Result result;
    if (!file.ok()) {
      result.status = file.status();
      return result;
    }
    RecordIoScanner scanner(*file);
    while (scanner.Next()) result.records.emplace_back(scanner.record());
    result.status = scanner.status();
    return result;
  }

  // What was read must be a beginning of what was written.
  static void ExpectPrefix(const std::vector<std::string>& records) {
    ASSERT_LE(records.size(), 20U);
    for (size_t i = 0; i < records.size(); ++i) {
      EXPECT_EQ(records[i], Record(static_cast<int>(i)));
    }
  }

  test::TempDir dir_;
  std::string path_;
};

TEST_F(RecordIoCorruptionTest, TruncatedAnywhereGivesTheRecordsBefore) {
  for (const auto compressor :
       {Compressor::kNone, Compressor::kSnappy, Compressor::kGzip}) {
    const std::string bytes = MakeFile(compressor);
    const auto chunks = (*RecordIoFile::Open(path_))->chunks();
    ASSERT_EQ(chunks.size(), 5U);
    for (size_t size = 1; size < bytes.size(); size += 3) {
      const Result result = Salvage(bytes.substr(0, size));
      size_t whole = 0;
      bool boundary = false;
      for (const ChunkInfo& chunk : chunks) {
        const size_t end = chunk.offset + 20 + chunk.payload_bytes;
        whole += end <= size ? 1 : 0;
        boundary |= end == size;
      }
      ExpectPrefix(result.records);
      EXPECT_EQ(result.records.size(), whole * 4) << size;
      EXPECT_EQ(result.status.ok(), boundary) << result.status;
      if (boundary) continue;
      EXPECT_EQ(result.status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(
          result.status.message(),
          HasSubstr("file: chunk " + std::to_string(whole) +
                    " at byte offset " + std::to_string(chunks[whole].offset)));
      // Without salvage the file does not open.
      EXPECT_EQ(RecordIoFile::Open(path_).status(), result.status);
    }
  }
}

TEST_F(RecordIoCorruptionTest, FlippedPayloadBitNamesTheChunk) {
  const std::string bytes = MakeFile(Compressor::kSnappy);
  const auto chunks = (*RecordIoFile::Open(path_))->chunks();
  std::string damaged = bytes;
  damaged[chunks[3].offset + 20 + 5] ^= 0x10;
  const Result result = Salvage(damaged);
  EXPECT_EQ(result.records.size(), 12U);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(
      result.status.message(),
      HasSubstr("chunk 3 at byte offset " + std::to_string(chunks[3].offset) +
                ": the payload's checksum differs"));
  // The chunks around it are still there.
  const auto verified = VerifyRecordIo(path_, nullptr);
  ASSERT_TRUE(verified.ok());
  EXPECT_EQ(verified->records, 16);
  EXPECT_EQ(verified->problems.size(), 1U);
}

TEST_F(RecordIoCorruptionTest, RandomDamageNeverCrashesOrInventsRecords) {
  const unsigned seed = testing::UnitTest::GetInstance()->random_seed() + 99;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const auto compressor :
       {Compressor::kNone, Compressor::kSnappy, Compressor::kGzip}) {
    const std::string bytes = MakeFile(compressor);
    for (int round = 0; round < 300; ++round) {
      std::string damaged = bytes;
      const size_t at = random() % bytes.size();
      damaged[at] ^= static_cast<char>(1 + random() % 255);
      const Result result = Salvage(damaged);
      // The number of records in a header is not covered by the checksum, but
      // must fit the payload.
      EXPECT_FALSE(result.status.ok()) << "byte " << at;
      ExpectPrefix(result.records);
    }
  }
}

// With right checksums, so that the decoders see the damage.
TEST_F(RecordIoCorruptionTest, DamageUnderARightChecksumIsFound) {
  const unsigned seed = testing::UnitTest::GetInstance()->random_seed() + 7;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::string> records(50, std::string(100, 'q'));
  const std::string raw = RawPayload(records);
  std::string frames, gzip;
  internal::SnappyFramesEncode(raw, frames);
  ASSERT_TRUE(internal::GzipEncode(raw, gzip).ok());
  for (int round = 0; round < 500; ++round) {
    for (uint32_t compressor : {0, 1, 2}) {
      std::string payload = compressor == 0   ? raw
                            : compressor == 1 ? frames
                                              : gzip;
      const int flips = 1 + static_cast<int>(random() % 3);
      for (int i = 0; i < flips; ++i) {
        payload[random() % payload.size()] ^= static_cast<char>(random());
      }
      if (random() % 4 == 0) payload.resize(random() % payload.size());
      Salvage(GoChunk(payload, compressor, 50));
      Salvage(PythonChunk(payload, compressor + 1, 50));
    }
  }
}

TEST_F(RecordIoCorruptionTest, RandomBytesAreNoRecords) {
  const unsigned seed = testing::UnitTest::GetInstance()->random_seed() + 3;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::string bytes(1 + random() % 100, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (round % 2 == 0) bytes = Le32(0x01020304) + bytes;
    const Result result = Salvage(bytes);
    EXPECT_TRUE(result.records.empty());
    EXPECT_EQ(result.status.code(), absl::StatusCode::kDataLoss);
  }
}

TEST_F(RecordIoCorruptionTest, HostileSizesDoNotAllocate) {
  // A snappy block that claims 4 GiB, and a header that claims 2^32 records.
  const std::string huge("\xff\xff\xff\xff\x0f\x00", 6);
  EXPECT_THAT(Salvage(PythonChunk(huge, 2, 1)).status.message(),
              HasSubstr("chunk 0 at byte offset 0"));
  EXPECT_THAT(
      Salvage(GoChunk(RawPayload({"a"}), 0, 0xffffffff)).status.message(),
      HasSubstr("4294967295 records in 5 bytes"));
}

}  // namespace
}  // namespace elasticdl::data
