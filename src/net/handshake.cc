#include "elasticdl/net/handshake.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/secret.h"
#include "elasticdl/common/status.h"

namespace elasticdl::net {
namespace {

constexpr absl::string_view kMagic("EDLN1\0\0\0", 8);
constexpr size_t kNonceBytes = 16;

std::string Raw(int32_t number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
}

absl::StatusOr<std::string> ReadBytes(Socket& socket, size_t size,
                                      absl::Duration timeout) {
  std::string bytes(size, '\0');
  ELASTICDL_RETURN_IF_ERROR(
      socket.ReadBy(bytes.data(), size, Clock::Real().Now() + timeout));
  return bytes;
}

}  // namespace

absl::Status GreetAsDialler(Socket& socket, const std::string& secret,
                            int32_t whom, absl::Duration timeout) {
  ELASTICDL_ASSIGN_OR_RETURN(
      const std::string hello,
      ReadBytes(socket, kMagic.size() + kNonceBytes, timeout));
  if (absl::string_view(hello).substr(0, kMagic.size()) != kMagic) {
    return absl::InvalidArgumentError("it does not speak this protocol");
  }
  const std::string text =
      absl::StrCat(hello, RandomBytes(kNonceBytes), Raw(whom));
  ELASTICDL_RETURN_IF_ERROR(
      socket.Write(absl::StrCat(text.substr(hello.size()),
                                Mac(secret, absl::StrCat("dialler", text))),
                   timeout));
  ELASTICDL_ASSIGN_OR_RETURN(const std::string answer,
                             ReadBytes(socket, kMacBytes, timeout));
  if (SecretsEqual(answer, Mac(secret, absl::StrCat("listener", text)))) {
    return absl::OkStatus();
  }
  if (SecretsEqual(answer, Mac(secret, absl::StrCat("wrong", text)))) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is not number ", whom));
  }
  return absl::PermissionDeniedError("it does not know the job's token");
}

absl::Status GreetAsListener(Socket& socket, const std::string& secret,
                             int32_t self, absl::Duration timeout) {
  const std::string hello = absl::StrCat(kMagic, RandomBytes(kNonceBytes));
  ELASTICDL_RETURN_IF_ERROR(socket.Write(hello, timeout));
  ELASTICDL_ASSIGN_OR_RETURN(
      const std::string answer,
      ReadBytes(socket, kNonceBytes + sizeof(int32_t) + kMacBytes, timeout));
  const std::string text =
      absl::StrCat(hello, answer.substr(0, kNonceBytes + sizeof(int32_t)));
  if (!SecretsEqual(answer.substr(kNonceBytes + sizeof(int32_t)),
                    Mac(secret, absl::StrCat("dialler", text)))) {
    // So that it knows why, and does not try again.
    socket.Write(std::string(kMacBytes, '\0'), timeout).IgnoreError();
    return absl::PermissionDeniedError("it does not know the job's token");
  }
  int32_t whom = 0;
  std::memcpy(&whom, answer.data() + kNonceBytes, sizeof(whom));
  const bool right = whom == self;
  ELASTICDL_RETURN_IF_ERROR(socket.Write(
      Mac(secret, absl::StrCat(right ? "listener" : "wrong", text)), timeout));
  if (right) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("it wants number ", whom, ", this is ", self));
}

}  // namespace elasticdl::net
