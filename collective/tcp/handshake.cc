#include "tcp/handshake.h"

#include <openssl/crypto.h>

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/offer.h"
#include "elasticdl/common/secret.h"

namespace elasticdl::collective {
namespace {

constexpr absl::string_view kMagic = "EDLH1";
constexpr size_t kNonceBytes = 16;

bool Same(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() &&
         CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string ReplyMac(const WorldSpec& world, const std::string& hello,
                     absl::string_view nonce) {
  return Mac(world.secret, absl::StrCat("reply", hello, nonce));
}

}  // namespace

std::string TcpHandshake::Hello(const WorldSpec& world, int listener) {
  std::string hello(kMagic);
  AppendRaw(world.generation, hello);
  AppendRaw(static_cast<int32_t>(world.rank), hello);
  AppendRaw(static_cast<int32_t>(listener), hello);
  hello += RandomBytes(kNonceBytes);
  hello += Mac(world.secret, absl::StrCat("hello", hello));
  return hello;
}

absl::StatusOr<int> TcpHandshake::ReadHello(const WorldSpec& world,
                                            const std::string& hello) {
  if (hello.size() != kHelloBytes || !absl::StartsWith(hello, kMagic)) {
    return absl::InvalidArgumentError("it does not speak this protocol");
  }
  const std::string signed_part = hello.substr(0, hello.size() - kMacBytes);
  if (!Same(Mac(world.secret, absl::StrCat("hello", signed_part)),
            hello.substr(signed_part.size()))) {
    return absl::PermissionDeniedError("it does not know the secret");
  }
  absl::string_view rest = hello;
  rest.remove_prefix(kMagic.size());
  int64_t generation = 0;
  int32_t dialler = 0;
  int32_t listener = 0;
  TakeRaw(rest, generation);
  TakeRaw(rest, dialler);
  TakeRaw(rest, listener);
  if (generation != world.generation) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is of generation ", generation));
  }
  if (listener != world.rank || dialler <= world.rank ||
      dialler >= world.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", dialler, " wants rank ", listener));
  }
  return dialler;
}

std::string TcpHandshake::Reply(const WorldSpec& world,
                                const std::string& hello) {
  const std::string nonce = RandomBytes(kNonceBytes);
  return nonce + ReplyMac(world, hello, nonce);
}

bool TcpHandshake::CheckReply(const WorldSpec& world, const std::string& hello,
                              const std::string& reply) {
  if (reply.size() != kReplyBytes) return false;
  return Same(ReplyMac(world, hello, reply.substr(0, kNonceBytes)),
              reply.substr(kNonceBytes));
}

std::string TcpHandshake::Confirm(const WorldSpec& world,
                                  const std::string& hello,
                                  const std::string& reply) {
  return Mac(world.secret, absl::StrCat("confirm", hello, reply));
}

}  // namespace elasticdl::collective
