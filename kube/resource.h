// Paths of objects in the API.
#pragma once

#include <string>
#include <vector>

#include "elasticdl/kube/client.h"

namespace elasticdl::kube {

// Segments of the path of all objects (`name` is empty) or of one. An empty
// `namespace_name` means all namespaces.
std::vector<std::string> PathOf(const Resource& resource,
                                const std::string& namespace_name,
                                const std::string& name = "");

}  // namespace elasticdl::kube
