// Protocol Buffers' wire format, as far as tf.Example needs it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace elasticdl::data::internal {

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5,
};

// Reads fields one after the other. Every method returns false on malformed
// bytes and never reads beyond them. Thread-compatible.
class WireReader {
 public:
  explicit WireReader(absl::string_view bytes)
      : next_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool done() const { return next_ == end_; }
  const char* position() const { return next_; }

  bool ReadVarint(uint64_t& value) {
    if (next_ < end_ && static_cast<uint8_t>(*next_) < 0x80) {
      value = static_cast<uint8_t>(*next_++);
      return true;
    }
    return ReadLongVarint(value);
  }
  bool ReadTag(uint32_t& field, WireType& type);
  // A length and that many bytes.
  bool ReadBytes(absl::string_view& bytes);
  bool ReadFixed32(uint32_t& value);
  // Beyond the value of a field of this type.
  bool Skip(uint32_t field, WireType type) { return Skip(field, type, 0); }

 private:
  bool ReadLongVarint(uint64_t& value);
  bool Skip(uint32_t field, WireType type, int depth);
  bool SkipBytes(uint64_t count);

  const char* next_;
  const char* const end_;
};

void AppendVarint(uint64_t value, std::string& out);
size_t VarintBytes(uint64_t value);
// Tag of a field of type kBytes and the length of what follows.
void AppendBytesHeader(uint32_t field, size_t length, std::string& out);

}  // namespace elasticdl::data::internal
