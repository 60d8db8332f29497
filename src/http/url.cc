#include "elasticdl/http/url.h"

#include <curl/curl.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace elasticdl::http {
namespace {

// One part of a URL; empty when it is not there.
std::string Part(CURLU* url, CURLUPart part, unsigned int flags) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return "";
  std::string copy(text);
  curl_free(text);
  return copy;
}

}  // namespace

absl::StatusOr<Url> ParseUrl(const std::string& text) {
  CURLU* parser = curl_url();
  const CURLUcode code = curl_url_set(parser, CURLUPART_URL, text.c_str(), 0);
  Url url;
  url.scheme = Part(parser, CURLUPART_SCHEME, 0);
  url.host = Part(parser, CURLUPART_HOST, 0);
  url.port = Part(parser, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  url.path = Part(parser, CURLUPART_PATH, 0);
  curl_url_cleanup(parser);
  if (code != CURLUE_OK || url.host.empty() ||
      (url.scheme != "http" && url.scheme != "https")) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not https://host[:port][/path]"));
  }
  while (!url.path.empty() && url.path.back() == '/') url.path.pop_back();
  return url;
}

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

}  // namespace elasticdl::http
