// See example_wire.h.
#include "example_wire.h"

#include <cstring>

namespace elasticdl::data::internal {
namespace {

// Skip calls itself for each: hostile data must not use up the stack.
constexpr int kMaxGroupDepth = 32;
constexpr int kMaxVarintBits = 70;

}  // namespace

bool WireReader::ReadLongVarint(uint64_t& value) {
  uint64_t result = 0;
  for (int shift = 0; shift < kMaxVarintBits; shift += 7) {
    if (next_ == end_) return false;
    const auto byte = static_cast<uint8_t>(*next_++);
    result |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) {
      value = result;
      return true;
    }
  }
  return false;
}

bool WireReader::ReadTag(uint32_t& field, WireType& type) {
  uint64_t tag = 0;
  if (!ReadVarint(tag) || tag > UINT32_MAX) return false;
  field = static_cast<uint32_t>(tag >> 3);
  const auto wire = static_cast<uint8_t>(tag & 7);
  type = static_cast<WireType>(wire);
  return field != 0 && wire <= static_cast<uint8_t>(WireType::kFixed32);
}

bool WireReader::ReadBytes(absl::string_view& bytes) {
  uint64_t length = 0;
  if (!ReadVarint(length)) return false;
  const char* start = next_;
  if (!SkipBytes(length)) return false;
  bytes = absl::string_view(start, length);
  return true;
}

bool WireReader::ReadFixed32(uint32_t& value) {
  const char* start = next_;
  if (!SkipBytes(sizeof(value))) return false;
  std::memcpy(&value, start, sizeof(value));
  return true;
}

bool WireReader::SkipBytes(uint64_t count) {
  if (count > static_cast<uint64_t>(end_ - next_)) return false;
  next_ += count;
  return true;
}

bool WireReader::Skip(uint32_t field, WireType type, int depth) {
  uint64_t value = 0;
  switch (type) {
    case WireType::kVarint:
      return ReadVarint(value);
    case WireType::kFixed64:
      return SkipBytes(8);
    case WireType::kFixed32:
      return SkipBytes(4);
    case WireType::kBytes:
      return ReadVarint(value) && SkipBytes(value);
    case WireType::kEndGroup:
      return false;
    case WireType::kStartGroup:
      break;
  }
  if (depth >= kMaxGroupDepth) return false;
  while (true) {
    uint32_t inner = 0;
    if (!ReadTag(inner, type)) return false;
    if (type == WireType::kEndGroup) return inner == field;
    if (!Skip(inner, type, depth + 1)) return false;
  }
}

void AppendVarint(uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

size_t VarintBytes(uint64_t value) {
  size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

void AppendBytesHeader(uint32_t field, size_t length, std::string& out) {
  AppendVarint((field << 3) | static_cast<uint32_t>(WireType::kBytes), out);
  AppendVarint(length, out);
}

}  // namespace elasticdl::data::internal
