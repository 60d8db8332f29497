// RecordIO files: chunks of records, back to back, without header, footer or
// index. A chunk is a 20-byte header of five little-endian uint32 and a
// payload of (uint32 length, bytes) per record, compressed as a whole.
//
//   variant    header after the magic 0x01020304                  checksum
//   kGo        checksum, compressor, payload size, records        CRC-32 (IEEE)
//   kPython    records, checksum, compressor, payload size        CRC-32C
//
// Compressors: kGo 0 none, 1 snappy framing format, 2 gzip; kPython 1 none,
// 2 snappy block, 3 gzip. The checksum is that of the compressed payload. Both
// variants are read, told apart by which of them fits the file; kGo is written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/common/file.h"

namespace elasticdl::data {

enum class Compressor { kNone, kSnappy, kGzip };
enum class RecordIoVariant { kGo, kPython };

absl::string_view CompressorName(Compressor compressor);
// none, snappy, gzip; INVALID_ARGUMENT otherwise.
absl::StatusOr<Compressor> ParseCompressor(absl::string_view name);

// One entry of the index.
struct ChunkInfo {
  uint64_t offset = 0;  // of the header in the file
  uint32_t payload_bytes = 0;
  uint32_t num_records = 0;
  uint32_t checksum = 0;
  Compressor compressor = Compressor::kNone;
  int64_t first_record = 0;  // its number in the file
};

namespace internal {
class BufferPool;
class MappedFile;
}  // namespace internal

// The records of one chunk. They point into the file's mapping (no compressor)
// or into a decompressed buffer; `memory` keeps either alive.
struct DecodedChunk {
  std::vector<absl::string_view> records;
  std::shared_ptr<const void> memory;
};

// A RecordIO file and its index. Thread-safe. The file is mapped: it must not
// shrink while it is open.
class RecordIoFile {
 public:
  struct Options {
    // A file whose chunk headers are broken from some offset on (a truncated
    // one, for example) opens with the chunks before it; damage() says what is
    // wrong. Otherwise Open fails with that status.
    bool salvage = false;
  };
  // Walks the headers; payloads are checked when they are read. DATA_LOSS names
  // file, chunk number and byte offset.
  static absl::StatusOr<std::shared_ptr<const RecordIoFile>> Open(
      const std::string& path, Options options);
  static absl::StatusOr<std::shared_ptr<const RecordIoFile>> Open(
      const std::string& path) {
    return Open(path, Options());
  }
  ~RecordIoFile();

  const std::string& path() const { return path_; }
  RecordIoVariant variant() const { return variant_; }
  const std::vector<ChunkInfo>& chunks() const { return chunks_; }
  int64_t num_records() const { return num_records_; }
  uint64_t bytes() const;
  // OK, or why the index ends early (only with Options::salvage).
  const absl::Status& damage() const { return damage_; }

  // The chunk that holds `record`, which must be in [0, num_records()).
  size_t FindChunk(int64_t record) const;
  // Checks and decompresses one chunk. DATA_LOSS names file, chunk and offset.
  absl::StatusOr<DecodedChunk> ReadChunk(size_t chunk) const;

 private:
  RecordIoFile() = default;

  // Constant after Open.
  std::string path_;
  std::shared_ptr<const internal::MappedFile> map_;
  RecordIoVariant variant_ = RecordIoVariant::kGo;
  std::vector<ChunkInfo> chunks_;
  int64_t num_records_ = 0;
  absl::Status damage_;
  // Has its own synchronisation; shared with the buffers that are out.
  std::shared_ptr<internal::BufferPool> pool_;
};

// Reads a range of records in order. Thread-compatible.
//
//   RecordIoScanner scanner(file, begin, count);
//   while (scanner.Next()) Use(scanner.record());
//   ELASTICDL_RETURN_IF_ERROR(scanner.status());
//
// Records before a corrupt chunk are handed out before the error appears.
class RecordIoScanner {
 public:
  // begin < 0 means 0; count < 0, or beyond the end, means to the end. A file
  // opened with salvage ends with its damage() as the status.
  explicit RecordIoScanner(std::shared_ptr<const RecordIoFile> file,
                           int64_t begin = 0, int64_t count = -1);

  // False at the end of the range or on an error.
  bool Next() {
    if (next_ < limit_) {
      ++next_;
      return true;
    }
    return NextChunk();
  }
  // The record of the last Next that returned true; valid until the next Next.
  absl::string_view record() const { return chunk_.records[next_ - 1]; }
  // Keeps record() valid beyond the next Next.
  const std::shared_ptr<const void>& memory() const { return chunk_.memory; }
  const absl::Status& status() const { return status_; }

 private:
  bool NextChunk();

  std::shared_ptr<const RecordIoFile> file_;
  int64_t position_ = 0;  // first record after the current chunk's part
  int64_t end_ = 0;
  size_t chunk_number_ = 0;
  DecodedChunk chunk_;
  size_t next_ = 0;
  size_t limit_ = 0;
  absl::Status status_;
};

// Writes a kGo file. Thread-compatible. The file appears under its name on
// Close, complete or not at all.
class RecordIoWriter {
 public:
  struct Options {
    Compressor compressor = Compressor::kSnappy;
    // Record bytes per chunk, lengths not counted. A smaller chunk makes range
    // reads cheaper, a larger one compresses better.
    uint64_t max_chunk_bytes = 32 << 20;
  };
  static absl::StatusOr<std::unique_ptr<RecordIoWriter>> Create(
      const std::string& path, Options options);
  // Without Close the file is discarded.
  ~RecordIoWriter();

  // INVALID_ARGUMENT when the record has max_chunk_bytes or more.
  absl::Status Write(absl::string_view record);
  // Flushes, syncs and gives the file its name.
  absl::Status Close();
  int64_t num_records() const { return num_records_; }

 private:
  RecordIoWriter(std::string path, Options options);
  absl::Status FlushChunk();

  const std::string path_;
  const std::string temporary_path_;
  const Options options_;
  Fd fd_;
  std::string payload_;
  std::string compressed_;
  uint64_t chunk_bytes_ = 0;
  uint32_t chunk_records_ = 0;
  int64_t num_records_ = 0;
};

}  // namespace elasticdl::data
