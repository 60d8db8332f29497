// Parts of URLs.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::http {

struct Url {
  // "http" or "https".
  std::string scheme;
  // An IPv6 address is in brackets.
  std::string host;
  // The scheme's default if the URL names none.
  std::string port;
  // "" or "/path", without a slash at the end.
  std::string path;
};

// INVALID_ARGUMENT unless it is http(s)://host[:port][/path].
absl::StatusOr<Url> ParseUrl(const std::string& text);

// All characters as %XX except the unreserved ones of RFC 3986.
std::string PercentEncode(absl::string_view text);

}  // namespace elasticdl::http
