// Secrets: comparing them, and proving knowledge of them.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace elasticdl {

// Compares in constant time, so that a secret cannot be guessed byte by byte.
// An empty secret equals nothing, not even itself: a secret that was never set
// lets nobody in.
bool SecretsEqual(absl::string_view a, absl::string_view b);

// HMAC-SHA256 of `text`: who can make it knows `secret`.
inline constexpr size_t kMacBytes = 32;
std::string Mac(absl::string_view secret, absl::string_view text);

// From the kernel; `count` <= 256.
std::string RandomBytes(size_t count);

}  // namespace elasticdl
