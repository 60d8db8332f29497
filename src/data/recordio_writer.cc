// Writes RecordIO files.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "chunk_header.h"
#include "compression.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "elasticdl/data/recordio.h"

namespace elasticdl::data {
namespace {

// Hidden, so that a reader of the folder does not take it for data.
std::string TemporaryPath(const std::string& path) {
  const size_t slash = path.rfind('/');
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  return absl::StrCat(path.substr(0, name), ".", path.substr(name), ".tmp");
}

absl::Status Compress(Compressor compressor, std::string& payload,
                      std::string& out) {
  switch (compressor) {
    case Compressor::kNone:
      out.swap(payload);
      return absl::OkStatus();
    case Compressor::kSnappy:
      internal::SnappyFramesEncode(payload, out);
      return absl::OkStatus();
    case Compressor::kGzip:
      return internal::GzipEncode(payload, out);
  }
  return absl::InternalError("no such compressor");
}

}  // namespace

RecordIoWriter::RecordIoWriter(std::string path, Options options)
    : path_(std::move(path)),
      temporary_path_(TemporaryPath(path_)),
      options_(options) {}

absl::StatusOr<std::unique_ptr<RecordIoWriter>> RecordIoWriter::Create(
    const std::string& path, Options options) {
  if (options.max_chunk_bytes == 0 || options.max_chunk_bytes > (1U << 30)) {
    return absl::InvalidArgumentError(
        absl::StrCat("write ", path, ": chunks of ", options.max_chunk_bytes,
                     " bytes, expected 1 to 2^30"));
  }
  std::unique_ptr<RecordIoWriter> writer(new RecordIoWriter(path, options));
  writer->fd_.Reset(open(writer->temporary_path_.c_str(),
                         O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!writer->fd_.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("create ", path));
  }
  return writer;
}

RecordIoWriter::~RecordIoWriter() {
  if (fd_.valid()) unlink(temporary_path_.c_str());
}

absl::Status RecordIoWriter::Write(absl::string_view record) {
  if (!fd_.valid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("write ", path_, ": already closed"));
  }
  if (record.size() >= options_.max_chunk_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "write ", path_, ": record ", num_records_, " has ", record.size(),
        " bytes, chunks have ", options_.max_chunk_bytes));
  }
  // Empty records count their length only, which the payload must hold too.
  if (chunk_bytes_ + record.size() > options_.max_chunk_bytes ||
      payload_.size() > (1U << 31)) {
    ELASTICDL_RETURN_IF_ERROR(FlushChunk());
  }
  const auto length = static_cast<uint32_t>(record.size());
  payload_.append(reinterpret_cast<const char*>(&length), sizeof(length));
  payload_.append(record.data(), record.size());
  chunk_bytes_ += record.size();
  ++chunk_records_;
  ++num_records_;
  return absl::OkStatus();
}

absl::Status RecordIoWriter::FlushChunk() {
  if (chunk_records_ == 0) return absl::OkStatus();
  compressed_.clear();
  ELASTICDL_RETURN_IF_ERROR(
      Compress(options_.compressor, payload_, compressed_));
  std::string header;
  internal::AppendChunkHeader(options_.compressor, compressed_, chunk_records_,
                              header);
  ELASTICDL_RETURN_IF_ERROR(Failpoint("recordio.write"));
  ELASTICDL_RETURN_IF_ERROR(WriteAll(fd_.get(), header, path_));
  ELASTICDL_RETURN_IF_ERROR(WriteAll(fd_.get(), compressed_, path_));
  payload_.clear();
  chunk_bytes_ = 0;
  chunk_records_ = 0;
  return absl::OkStatus();
}

absl::Status RecordIoWriter::Close() {
  if (!fd_.valid()) return absl::OkStatus();
  ELASTICDL_RETURN_IF_ERROR(FlushChunk());
  ELASTICDL_RETURN_IF_ERROR(Failpoint("recordio.sync"));
  if (fsync(fd_.get()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("sync ", path_));
  }
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("rename to ", path_));
  }
  fd_.Reset();
  return absl::OkStatus();
}

}  // namespace elasticdl::data
