// Messages on a connection between a worker and a parameter server:
//   "EDP1", uint32 header bytes, uint64 payload bytes; the header (a protobuf
//   message), the payload. Little-endian.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/net/socket.h"
#include "google/protobuf/message_lite.h"

namespace elasticdl::ps {

// Bytes at a multiple of 16 that are not set to 0 and that are used again.
// Thread-compatible.
class Buffer {
 public:
  // What it held is lost. Null: no memory.
  char* Resize(size_t size);
  // Keeps only the first bytes of what it holds.
  void Shrink(size_t size) { size_ = size; }
  // Gives the memory back if it is more than `most`; else it is kept for the
  // next use.
  void Trim(size_t most = size_t{16} << 20);
  char* data() { return data_.get(); }
  size_t size() const { return size_; }
  absl::string_view view() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(char* data) const { free(data); }
  };
  std::unique_ptr<char, Free> data_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

// What a message may have at most. A stranger never gets so far as to claim a
// size.
inline constexpr uint32_t kMaxHeaderBytes = 64 << 20;
inline constexpr uint64_t kMaxPayloadBytes = uint64_t{16} << 30;

absl::Status WriteMessage(net::Socket& socket,
                          const google::protobuf::MessageLite& header,
                          std::vector<iovec> payload, absl::Duration timeout);

// INVALID_ARGUMENT for bytes that are no such message: the connection is of no
// more use.
absl::Status ReadMessage(net::Socket& socket,
                         google::protobuf::MessageLite& header, Buffer& payload,
                         absl::Duration timeout);
// The same in two steps: the first returns the size of the payload.
absl::StatusOr<uint64_t> ReadHeader(net::Socket& socket,
                                    google::protobuf::MessageLite& header,
                                    absl::Duration timeout);
absl::Status ReadPayload(net::Socket& socket, uint64_t size, Buffer& payload,
                         absl::Duration timeout);

}  // namespace elasticdl::ps
