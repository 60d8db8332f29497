// Snappy's block and framing formats over libsnappy.
#include <snappy.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "compression.h"
#include "elasticdl/common/crc32.h"

namespace elasticdl::data::internal {
namespace {

constexpr absl::string_view kStreamId("\xff\x06\x00\x00sNaPpY", 10);
constexpr size_t kFrameHeaderBytes = 4;
constexpr size_t kChecksumBytes = 4;
constexpr size_t kMaxFrameBytes = 65536;
// A snappy copy makes at most 64 bytes of 3.
constexpr uint64_t kMaxSnappyExpansion = 64;

enum FrameType : uint8_t {
  kCompressed = 0x00,
  kRaw = 0x01,
  kFirstSkippable = 0x80,
  kStream = 0xff,
};

uint32_t Load32(const char* data) {
  uint32_t value;
  std::memcpy(&value, data, sizeof(value));
  return value;  // little-endian hosts only, like the rest of the formats
}

// One frame of a stream.
struct Frame {
  uint8_t type = 0;
  absl::string_view body;  // data frames: after the checksum
  uint32_t checksum = 0;
  size_t raw_bytes = 0;
};

absl::Status BadSnappy(absl::string_view what, size_t at) {
  return absl::DataLossError(
      absl::StrCat("snappy stream: ", what, " at payload byte ", at));
}

absl::Status ReadDataFrame(size_t at, Frame& frame) {
  if (frame.body.size() < kChecksumBytes) return BadSnappy("short frame", at);
  frame.checksum = Load32(frame.body.data());
  frame.body.remove_prefix(kChecksumBytes);
  frame.raw_bytes = frame.body.size();
  if (frame.type == kCompressed &&
      !snappy::GetUncompressedLength(frame.body.data(), frame.body.size(),
                                     &frame.raw_bytes)) {
    return BadSnappy("bad block length", at);
  }
  if (frame.raw_bytes > kMaxFrameBytes) return BadSnappy("oversized frame", at);
  return absl::OkStatus();
}

// Reads the frame at `position` and moves beyond it.
absl::Status ReadFrame(absl::string_view data, size_t& position, Frame& frame) {
  const size_t at = position;
  const size_t left = data.size() - at;
  if (left < kFrameHeaderBytes) return BadSnappy("truncated frame header", at);
  const uint32_t word = Load32(data.data() + at);
  frame.type = static_cast<uint8_t>(word & 0xff);
  const size_t body_bytes = word >> 8;
  if (body_bytes > left - kFrameHeaderBytes)
    return BadSnappy("truncated frame", at);
  frame.body = data.substr(at + kFrameHeaderBytes, body_bytes);
  frame.raw_bytes = 0;
  position = at + kFrameHeaderBytes + body_bytes;
  if (frame.type == kCompressed || frame.type == kRaw) {
    return ReadDataFrame(at, frame);
  }
  if (frame.type == kStream) {
    if (data.substr(at, position - at) != kStreamId) {
      return BadSnappy("bad stream identifier", at);
    }
    return absl::OkStatus();
  }
  if (frame.type >= kFirstSkippable) return absl::OkStatus();
  return BadSnappy(absl::StrCat("unknown frame type ", frame.type), at);
}

absl::Status DecodeFrame(const Frame& frame, size_t position, char* out) {
  if (frame.type == kCompressed) {
    if (!snappy::RawUncompress(frame.body.data(), frame.body.size(), out)) {
      return BadSnappy("corrupt block before the end", position);
    }
  } else {
    std::memcpy(out, frame.body.data(), frame.raw_bytes);
  }
  if (MaskCrc32c(Crc32c(absl::string_view(out, frame.raw_bytes))) !=
      frame.checksum) {
    return BadSnappy("frame checksum differs before the end", position);
  }
  return absl::OkStatus();
}

void AppendFrame(absl::string_view data, std::string& out) {
  const size_t start = out.size();
  const size_t body = start + kFrameHeaderBytes + kChecksumBytes;
  out.resize(body + snappy::MaxCompressedLength(data.size()));
  size_t body_bytes = 0;
  snappy::RawCompress(data.data(), data.size(), &out[body], &body_bytes);
  uint8_t type = kCompressed;
  // Not worth decompressing for less than an eighth.
  if (body_bytes >= data.size() - data.size() / 8) {
    type = kRaw;
    body_bytes = data.size();
    std::memcpy(&out[body], data.data(), body_bytes);
  }
  out.resize(body + body_bytes);
  const uint32_t word =
      type | (static_cast<uint32_t>(body_bytes + kChecksumBytes) << 8);
  const uint32_t checksum = MaskCrc32c(Crc32c(data));
  std::memcpy(&out[start], &word, sizeof(word));
  std::memcpy(&out[start + kFrameHeaderBytes], &checksum, sizeof(checksum));
}

}  // namespace

absl::StatusOr<PooledBytes> SnappyFramesDecode(absl::string_view data,
                                               BufferPool& pool) {
  if (!data.empty() && data.substr(0, kStreamId.size()) != kStreamId) {
    return BadSnappy("no stream identifier", 0);
  }
  // Twice: the sizes first, so that all frames go into one buffer.
  Frame frame;
  uint64_t total = 0;
  for (size_t position = 0; position < data.size();) {
    if (auto status = ReadFrame(data, position, frame); !status.ok()) {
      return status;
    }
    total += frame.raw_bytes;
  }
  if (total > kMaxDecompressedBytes) return BadSnappy("more than 2 GiB", 0);
  std::shared_ptr<char> memory = pool.Get(total);
  char* out = memory.get();
  for (size_t position = 0; position < data.size();) {
    if (auto status = ReadFrame(data, position, frame); !status.ok()) {
      return status;
    }
    if (frame.type > kRaw) continue;
    if (auto status = DecodeFrame(frame, position, out); !status.ok()) {
      return status;
    }
    out += frame.raw_bytes;
  }
  return PooledBytes{absl::string_view(memory.get(), total), memory};
}

absl::StatusOr<PooledBytes> SnappyBlockDecode(absl::string_view data,
                                              BufferPool& pool) {
  size_t size = 0;
  if (!snappy::GetUncompressedLength(data.data(), data.size(), &size) ||
      size > kMaxDecompressedBytes ||
      size > data.size() * kMaxSnappyExpansion) {
    return absl::DataLossError("snappy block: bad length");
  }
  std::shared_ptr<char> memory = pool.Get(size);
  if (!snappy::RawUncompress(data.data(), data.size(), memory.get())) {
    return absl::DataLossError("snappy block: corrupt");
  }
  return PooledBytes{absl::string_view(memory.get(), size), memory};
}

void SnappyFramesEncode(absl::string_view data, std::string& out) {
  absl::StrAppend(&out, kStreamId);
  for (size_t at = 0; at < data.size(); at += kMaxFrameBytes) {
    AppendFrame(data.substr(at, kMaxFrameBytes), out);
  }
}

}  // namespace elasticdl::data::internal
