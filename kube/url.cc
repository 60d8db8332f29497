#include "url.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace elasticdl::kube {

std::string PercentEncode(absl::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '.' || c == '_' ||
        c == '~') {
      encoded.push_back(c);
    } else {
      encoded.push_back('%');
      encoded.push_back(kHex[byte >> 4]);
      encoded.push_back(kHex[byte & 15]);
    }
  }
  return encoded;
}

std::string TargetOf(const Request& request) {
  std::string target;
  for (const std::string& segment : request.path) {
    absl::StrAppend(&target, "/", PercentEncode(segment));
  }
  const char* separator = "?";
  for (const auto& [key, value] : request.query) {
    absl::StrAppend(&target, separator, PercentEncode(key), "=",
                    PercentEncode(value));
    separator = "&";
  }
  return target.empty() ? "/" : target;
}

}  // namespace elasticdl::kube
