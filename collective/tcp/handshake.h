// The first messages on a connection: both ends prove that they know the job's
// secret and belong to the same generation.
//
//   dialler  -> listener  hello    generation, both ranks, a nonce, MAC
//   listener -> dialler   reply    a nonce, MAC over both
//   dialler  -> listener  confirm  MAC over both
//
// Nonces make a recorded handshake useless. All messages have fixed sizes, so
// that a stranger cannot make us allocate memory.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::collective {

// Pure functions of the protocol; `world` is the caller's own view.
class TcpHandshake {
 public:
  static constexpr size_t kHelloBytes = 5 + 8 + 4 + 4 + 16 + 32;
  static constexpr size_t kReplyBytes = 16 + 32;
  static constexpr size_t kConfirmBytes = 32;

  static std::string Hello(const WorldSpec& world, int listener);
  // The dialler's rank. Errors say why it is not a member.
  static absl::StatusOr<int> ReadHello(const WorldSpec& world,
                                       const std::string& hello);
  static std::string Reply(const WorldSpec& world, const std::string& hello);
  static bool CheckReply(const WorldSpec& world, const std::string& hello,
                         const std::string& reply);
  static std::string Confirm(const WorldSpec& world, const std::string& hello,
                             const std::string& reply);
};

}  // namespace elasticdl::collective
