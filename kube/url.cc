#include "url.h"

#include "absl/strings/str_cat.h"
#include "elasticdl/http/url.h"

namespace elasticdl::kube {

using http::PercentEncode;

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
