// URLs of requests.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "elasticdl/kube/transport.h"

namespace elasticdl::kube {

// All but the unreserved characters of RFC 3986 as %XX.
std::string PercentEncode(absl::string_view text);

// "/api/v1/pods?watch=1": path and query of the request. An empty last segment
// gives a slash at the end.
std::string TargetOf(const Request& request);

}  // namespace elasticdl::kube
