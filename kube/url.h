// URLs of requests.
#pragma once

#include <string>

#include "elasticdl/kube/transport.h"

namespace elasticdl::kube {

// "/api/v1/pods?watch=1": path and query of the request. An empty last segment
// gives a slash at the end.
std::string TargetOf(const Request& request);

}  // namespace elasticdl::kube
