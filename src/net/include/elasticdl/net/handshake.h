// The first bytes on a connection: both ends prove that they know the job's
// secret, and the one who connects says whom it wants.
//
//   listener -> dialler   "EDLN1\0\0\0", a nonce of 16 bytes
//   dialler  -> listener  a nonce, int32 whom, HMAC-SHA256 over all of it
//   listener -> dialler   HMAC-SHA256 over all of it; zeros: refused
//
// Nonces prevent replay of a recorded handshake. Sizes are fixed, so that a
// stranger's bytes cost little.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "elasticdl/net/socket.h"

namespace elasticdl::net {

// PERMISSION_DENIED: the other end does not know the secret.
// FAILED_PRECONDITION: the listener is not `whom`.
absl::Status GreetAsDialler(Socket& socket, const std::string& secret,
                            int32_t whom, absl::Duration timeout);
absl::Status GreetAsListener(Socket& socket, const std::string& secret,
                             int32_t self, absl::Duration timeout);

}  // namespace elasticdl::net
