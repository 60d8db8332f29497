// A model from a TorchScript file.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/model/loader.h"

namespace elasticdl::model {

// Loss, optimizer, feed and metrics are built-in functions chosen by the
// options. The network starts with the values in the file, whatever the seed.
absl::StatusOr<std::unique_ptr<Model>> LoadTorchScript(
    const LoadOptions& options, const std::string& path);

}  // namespace elasticdl::model
