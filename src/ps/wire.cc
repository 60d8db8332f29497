#include "wire.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"

namespace elasticdl::ps {
namespace {

struct Head {
  char magic[4] = {'E', 'D', 'P', '1'};
  uint32_t header_bytes = 0;
  uint64_t payload_bytes = 0;
};
static_assert(sizeof(Head) == 16, "fields without holes");

}  // namespace

char* Buffer::Resize(size_t size) {
  if (size > capacity_) {
    // Freed first: both together may be too much.
    data_.reset();
    capacity_ = 0;
    size_ = 0;
    data_.reset(static_cast<char*>(malloc(size)));
    if (data_ == nullptr) return nullptr;
    capacity_ = size;
  }
  size_ = size;
  return data_.get();
}

void Buffer::Trim(size_t most) {
  if (capacity_ <= most) return;
  data_.reset();
  capacity_ = 0;
  size_ = 0;
}

absl::Status WriteMessage(net::Socket& socket,
                          const google::protobuf::MessageLite& header,
                          std::vector<iovec> payload, absl::Duration timeout) {
  const std::string bytes = header.SerializeAsString();
  Head head;
  head.header_bytes = static_cast<uint32_t>(bytes.size());
  for (const iovec& part : payload) head.payload_bytes += part.iov_len;
  if (bytes.size() > kMaxHeaderBytes || head.payload_bytes > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", bytes.size(), " and ", head.payload_bytes,
                     " bytes is too large"));
  }
  std::vector<iovec> parts;
  parts.reserve(payload.size() + 2);
  parts.push_back({&head, sizeof(head)});
  parts.push_back({const_cast<char*>(bytes.data()), bytes.size()});
  parts.insert(parts.end(), payload.begin(), payload.end());
  return socket.Write(std::move(parts), timeout);
}

absl::Status ReadMessage(net::Socket& socket,
                         google::protobuf::MessageLite& header, Buffer& payload,
                         absl::Duration timeout) {
  ELASTICDL_ASSIGN_OR_RETURN(const uint64_t size,
                             ReadHeader(socket, header, timeout));
  return ReadPayload(socket, size, payload, timeout);
}

absl::StatusOr<uint64_t> ReadHeader(net::Socket& socket,
                                    google::protobuf::MessageLite& header,
                                    absl::Duration timeout) {
  Head head;
  ELASTICDL_RETURN_IF_ERROR(socket.Read(&head, sizeof(head), timeout));
  if (std::memcmp(head.magic, Head().magic, sizeof(head.magic)) != 0 ||
      head.header_bytes > kMaxHeaderBytes ||
      head.payload_bytes > kMaxPayloadBytes) {
    return absl::InvalidArgumentError("no message of this protocol");
  }
  std::string bytes(head.header_bytes, '\0');
  ELASTICDL_RETURN_IF_ERROR(socket.Read(bytes.data(), bytes.size(), timeout));
  if (!header.ParseFromString(bytes)) {
    return absl::InvalidArgumentError("a header that cannot be understood");
  }
  return head.payload_bytes;
}

absl::Status ReadPayload(net::Socket& socket, uint64_t size, Buffer& payload,
                         absl::Duration timeout) {
  if (payload.Resize(size) == nullptr && size > 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", size, " bytes"));
  }
  return socket.Read(payload.data(), payload.size(), timeout);
}

}  // namespace elasticdl::ps
