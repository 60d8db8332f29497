// The files of a data set.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace elasticdl::data {

// A file by itself; of a folder the files, sorted, whose names `accept` takes,
// without hidden ones. NOT_FOUND when there is no `origin`.
absl::StatusOr<std::vector<std::string>> ListFiles(
    const std::string& origin,
    const std::function<bool(const std::string& name)>& accept);

}  // namespace elasticdl::data
