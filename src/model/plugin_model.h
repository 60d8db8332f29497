// A model from a compiled model file.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/model/loader.h"

namespace elasticdl::model {

// Loads the .so at `library`. `source` is the file to name in messages.
absl::StatusOr<std::unique_ptr<Model>> LoadPlugin(const LoadOptions& options,
                                                  const std::string& source,
                                                  const std::string& symbol,
                                                  const std::string& library);

}  // namespace elasticdl::model
