// One entry in the log of a parameter server, on the disk and on the way to a
// backup: uint64 number, uint32 header bytes, uint32 CRC-32C of header and
// payload, uint64 payload bytes, uint32 CRC-32C of these, uint32 0; the header
// (v1::PsEntry), the payload; both with zeros up to a multiple of 8.
// Little-endian.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace elasticdl::ps {

struct FrameHead {
  uint64_t number = 0;
  uint32_t header_bytes = 0;
  uint32_t crc = 0;
  uint64_t payload_bytes = 0;
  // Of what is above: a length that cannot be trusted would hide what follows.
  uint32_t head_crc = 0;
  uint32_t zero = 0;

  uint32_t Checksum() const;
  // Of the whole frame. Only with a right checksum, and only if not TooLong.
  uint64_t FrameBytes() const;
  // No entry is that long; its size could overflow.
  bool TooLong() const;
};
static_assert(sizeof(FrameHead) == 32, "fields without holes");

FrameHead MakeFrameHead(int64_t number, absl::string_view header,
                        absl::string_view payload);
uint64_t PaddedTo8(uint64_t bytes);
// The bytes of a frame, for writev; they stay where they are.
std::vector<iovec> FrameParts(const FrameHead& head, absl::string_view header,
                              absl::string_view payload);

// Views into the bytes that were parsed.
struct Frame {
  int64_t number = 0;
  absl::string_view header;
  absl::string_view payload;
  // All of it.
  absl::string_view whole;
};
enum class FrameResult {
  kOk,
  // It goes on behind the end of the bytes.
  kShort,
  // Its head is wrong: where it ends is not known.
  kBadHead,
  // Its content is wrong; `whole` is right.
  kBadContent,
};
// The frame at the front of `bytes`, which are trusted in nothing.
FrameResult ParseFrame(absl::string_view bytes, Frame& frame);

}  // namespace elasticdl::ps
