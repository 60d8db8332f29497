#include "log_frame.h"

#include <cstring>

#include "elasticdl/common/crc32.h"
#include "wire.h"

namespace elasticdl::ps {

uint64_t PaddedTo8(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

uint32_t FrameHead::Checksum() const {
  return Crc32c({reinterpret_cast<const char*>(this), 24});
}

uint64_t FrameHead::FrameBytes() const {
  return sizeof(*this) + PaddedTo8(header_bytes) + PaddedTo8(payload_bytes);
}

bool FrameHead::TooLong() const {
  return header_bytes > kMaxHeaderBytes || payload_bytes > kMaxPayloadBytes;
}

FrameHead MakeFrameHead(int64_t number, absl::string_view header,
                        absl::string_view payload) {
  FrameHead head;
  head.number = static_cast<uint64_t>(number);
  head.header_bytes = static_cast<uint32_t>(header.size());
  head.payload_bytes = payload.size();
  head.crc = ExtendCrc32c(Crc32c(header), payload);
  head.head_crc = head.Checksum();
  return head;
}

std::vector<iovec> FrameParts(const FrameHead& head, absl::string_view header,
                              absl::string_view payload) {
  static constexpr char kZeros[8] = {};
  const auto part = [](const void* data, size_t size) {
    return iovec{const_cast<void*>(data), size};
  };
  return {part(&head, sizeof(head)), part(header.data(), header.size()),
          part(kZeros, PaddedTo8(header.size()) - header.size()),
          part(payload.data(), payload.size()),
          part(kZeros, PaddedTo8(payload.size()) - payload.size())};
}

FrameResult ParseFrame(absl::string_view bytes, Frame& frame) {
  FrameHead head;
  if (bytes.size() < sizeof(head)) return FrameResult::kShort;
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.head_crc != head.Checksum() || head.TooLong()) {
    return FrameResult::kBadHead;
  }
  if (bytes.size() < head.FrameBytes()) return FrameResult::kShort;
  frame.number = static_cast<int64_t>(head.number);
  frame.header = bytes.substr(sizeof(head), head.header_bytes);
  frame.payload = bytes.substr(sizeof(head) + PaddedTo8(head.header_bytes),
                               head.payload_bytes);
  frame.whole = bytes.substr(0, head.FrameBytes());
  return ExtendCrc32c(Crc32c(frame.header), frame.payload) == head.crc
             ? FrameResult::kOk
             : FrameResult::kBadContent;
}

}  // namespace elasticdl::ps
