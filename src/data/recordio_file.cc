// Index, chunk decoding and range scans of RecordIO files.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "buffer_pool.h"
#include "chunk_header.h"
#include "compression.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/status.h"
#include "elasticdl/data/recordio.h"
#include "mapped_file.h"

namespace elasticdl::data {
namespace {

using internal::kChunkHeaderBytes;
using internal::PooledBytes;

constexpr size_t kLengthBytes = 4;

// "read FILE: chunk 3 at byte offset 1234: why".
absl::Status AtChunk(const std::string& path, size_t chunk, uint64_t offset,
                     const absl::Status& why) {
  return Annotate(why, absl::StrCat("read ", path, ": chunk ", chunk,
                                    " at byte offset ", offset));
}

absl::StatusOr<PooledBytes> Decompress(
    Compressor compressor, RecordIoVariant variant, absl::string_view payload,
    std::shared_ptr<const void> payload_memory, internal::BufferPool& pool) {
  switch (compressor) {
    case Compressor::kNone:
      return PooledBytes{payload, std::move(payload_memory)};
    case Compressor::kSnappy:
      return variant == RecordIoVariant::kGo
                 ? internal::SnappyFramesDecode(payload, pool)
                 : internal::SnappyBlockDecode(payload, pool);
    case Compressor::kGzip:
      return internal::GzipDecode(payload, pool);
  }
  return absl::InternalError("no such compressor");
}

absl::Status SplitRecords(absl::string_view bytes, uint32_t num_records,
                          std::vector<absl::string_view>& records) {
  // A damaged number must not reserve memory for what cannot be there.
  if (num_records > bytes.size() / kLengthBytes) {
    return absl::DataLossError(
        absl::StrCat(num_records, " records in ", bytes.size(), " bytes"));
  }
  records.reserve(num_records);
  const char* data = bytes.data();
  size_t left = bytes.size();
  for (uint32_t i = 0; i < num_records; ++i) {
    uint32_t length = 0;
    if (left < kLengthBytes) {
      return absl::DataLossError(absl::StrCat("ends in record ", i));
    }
    std::memcpy(&length, data, kLengthBytes);
    data += kLengthBytes;
    left -= kLengthBytes;
    if (length > left) {
      return absl::DataLossError(absl::StrCat("record ", i, " of ", length,
                                              " bytes, only ", left, " left"));
    }
    records.emplace_back(data, length);
    data += length;
    left -= length;
  }
  if (left != 0) {
    return absl::DataLossError(
        absl::StrCat(left, " bytes after the last record"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view CompressorName(Compressor compressor) {
  switch (compressor) {
    case Compressor::kNone:
      return "none";
    case Compressor::kSnappy:
      return "snappy";
    case Compressor::kGzip:
      return "gzip";
  }
  return "unknown";
}

absl::StatusOr<Compressor> ParseCompressor(absl::string_view name) {
  for (const Compressor compressor :
       {Compressor::kNone, Compressor::kSnappy, Compressor::kGzip}) {
    if (name == CompressorName(compressor)) return compressor;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown compressor '", name, "', expected none, snappy or gzip"));
}

absl::StatusOr<std::shared_ptr<const RecordIoFile>> RecordIoFile::Open(
    const std::string& path, Options options) {
  std::shared_ptr<RecordIoFile> file(new RecordIoFile());
  file->path_ = path;
  ELASTICDL_ASSIGN_OR_RETURN(file->map_, internal::MappedFile::Open(path));
  file->pool_ = std::make_shared<internal::BufferPool>();
  const absl::string_view bytes = file->map_->bytes();
  file->variant_ = internal::DetectVariant(bytes);
  // Headers only, so that a large file opens at once: payloads are checked when
  // they are read.
  uint64_t offset = 0;
  while (offset < bytes.size()) {
    auto chunk = internal::ParseChunkHeader(bytes, offset, file->variant_);
    if (!chunk.ok()) {
      file->damage_ =
          AtChunk(path, file->chunks_.size(), offset, chunk.status());
      break;
    }
    chunk->first_record = file->num_records_;
    file->num_records_ += chunk->num_records;
    offset += kChunkHeaderBytes + chunk->payload_bytes;
    file->chunks_.push_back(*std::move(chunk));
  }
  if (!file->damage_.ok() && !options.salvage) return file->damage_;
  return file;
}

RecordIoFile::~RecordIoFile() = default;

uint64_t RecordIoFile::bytes() const { return map_->bytes().size(); }

size_t RecordIoFile::FindChunk(int64_t record) const {
  ELASTICDL_CHECK(record >= 0 && record < num_records_);
  const auto after = std::upper_bound(
      chunks_.begin(), chunks_.end(), record,
      [](int64_t value, const ChunkInfo& c) { return value < c.first_record; });
  return static_cast<size_t>(after - chunks_.begin()) - 1;
}

absl::StatusOr<DecodedChunk> RecordIoFile::ReadChunk(size_t number) const {
  ELASTICDL_CHECK(number < chunks_.size());
  const ChunkInfo& chunk = chunks_[number];
  const absl::string_view payload = map_->bytes().substr(
      chunk.offset + kChunkHeaderBytes, chunk.payload_bytes);
  if (internal::PayloadChecksum(payload, variant_) != chunk.checksum) {
    return AtChunk(path_, number, chunk.offset,
                   absl::DataLossError("the payload's checksum differs"));
  }
  auto bytes = Decompress(chunk.compressor, variant_, payload, map_, *pool_);
  if (!bytes.ok()) {
    return AtChunk(path_, number, chunk.offset, bytes.status());
  }
  DecodedChunk decoded;
  const absl::Status status =
      SplitRecords(bytes->bytes, chunk.num_records, decoded.records);
  if (!status.ok()) return AtChunk(path_, number, chunk.offset, status);
  decoded.memory = std::move(bytes->memory);
  return decoded;
}

RecordIoScanner::RecordIoScanner(std::shared_ptr<const RecordIoFile> file,
                                 int64_t begin, int64_t count)
    : file_(std::move(file)) {
  const int64_t total = file_->num_records();
  position_ = std::min(std::max<int64_t>(begin, 0), total);
  const bool to_end = count < 0 || count > total - position_;
  end_ = to_end ? total : position_ + count;
  if (position_ < end_) chunk_number_ = file_->FindChunk(position_);
}

bool RecordIoScanner::NextChunk() {
  next_ = limit_ = 0;
  if (!status_.ok()) return false;
  if (position_ >= end_) {
    // Only whoever wants all of it must know that there was more.
    if (end_ == file_->num_records()) status_ = file_->damage();
    return false;
  }
  chunk_ = DecodedChunk();  // its buffer can be used again
  while (file_->chunks()[chunk_number_].num_records == 0) ++chunk_number_;
  auto chunk = file_->ReadChunk(chunk_number_);
  if (!chunk.ok()) {
    status_ = chunk.status();
    return false;
  }
  chunk_ = *std::move(chunk);
  const ChunkInfo& info = file_->chunks()[chunk_number_++];
  next_ = static_cast<size_t>(position_ - info.first_record) + 1;
  const int64_t chunk_end = info.first_record + info.num_records;
  position_ = std::min(end_, chunk_end);
  limit_ = static_cast<size_t>(position_ - info.first_record);
  return true;
}

}  // namespace elasticdl::data
