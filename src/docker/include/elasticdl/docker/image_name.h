// The parts of an image's name.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace elasticdl::docker {

struct ImageName {
  // "gcr.io", "localhost:5000"; "docker.io" when the name has none.
  std::string registry;
  // As it was given, the registry included, without tag and digest.
  std::string repository;
  // "latest" when the name has none.
  std::string tag;
  // "sha256:…", mostly empty.
  std::string digest;
};

// Splits e.g. "localhost:5000/me/zoo:1.0". INVALID_ARGUMENT when the engine
// would not accept it; the message says what is wrong.
absl::StatusOr<ImageName> ParseImageName(const std::string& text);

}  // namespace elasticdl::docker
