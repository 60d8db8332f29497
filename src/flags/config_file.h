// `--config job.yaml`: flags in a file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace elasticdl::flags {

struct ConfigEntry {
  std::string name;
  std::string value;
  // "job.yaml:3", for error messages.
  std::string where;
};

// The entries of a YAML file whose top level maps flag names to scalars.
// INVALID_ARGUMENT with file and line when it is not that.
absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(
    const std::string& path);

}  // namespace elasticdl::flags
