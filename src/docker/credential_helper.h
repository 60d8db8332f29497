// Programs that store the user's passwords for Docker.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace elasticdl::docker {

struct HelperAnswer {
  std::string user;
  std::string secret;
};

// Asks `docker-credential-<helper> get` for `server`. The program is looked for
// in `path` (the value of PATH). Empty fields: it has no entry for the server.
// NOT_FOUND: no such program; UNAVAILABLE: it failed, or took more than
// `timeout`. No message contains the secret.
absl::StatusOr<HelperAnswer> AskCredentialHelper(const std::string& helper,
                                                 const std::string& server,
                                                 const std::string& path,
                                                 absl::Duration timeout);

}  // namespace elasticdl::docker
