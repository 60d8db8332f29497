// elasticdl zoo init, build, push: images of a model zoo.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/flags/flag_set.h"

namespace elasticdl::cli {

int RunZoo(const std::vector<std::string>& args);
// In `elasticdl-cluster`.
int RunZooBuild(const std::vector<std::string>& args);
int RunZooPush(const std::vector<std::string>& args);

// Prints an error of a zoo command and returns the exit code.
int FailZoo(const flags::FlagSet& set, const absl::Status& status);

struct ZooInitFlags {
  std::string base_image = "elasticdl:latest";
  std::string extra_pypi_index = "https://pypi.org/simple";
  std::string cluster_spec;
  std::string local_pkg_dir;
  std::string model_zoo = ".";
  bool force = false;
};
void AddZooInitFlags(ZooInitFlags* flags, flags::FlagSet* set);

struct ZooBuildFlags {
  std::string image;
  std::string dockerfile;
  std::string network;
  std::string build_args;
  bool no_cache = false;
  bool pull = false;
  std::vector<std::string> path;
};
void AddZooBuildFlags(ZooBuildFlags* flags, flags::FlagSet* set);

// The Dockerfile for a zoo below the folder `context` (for `zoo init` the
// current one). INVALID_ARGUMENT when something is missing or not below it.
absl::StatusOr<std::string> MakeDockerfile(const ZooInitFlags& flags,
                                           const std::string& context);

}  // namespace elasticdl::cli
