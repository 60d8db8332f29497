// The files of one version-V folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "layout.h"

namespace elasticdl::checkpoint::internal {

struct VersionFiles {
  // Absent in checkpoints of the Python ElasticDL.
  std::optional<Manifest> manifest;
  // With a manifest: its files. Without: names and sizes as they are.
  std::vector<ManifestFile> files;
};

// Finds the files and checks that they are all there in the right size; reads
// none but the manifest. NOT_FOUND or DATA_LOSS say which is not.
absl::StatusOr<VersionFiles> FindVersionFiles(const std::string& path);

// Has `path` files of a checkpoint in it, complete or not?
bool LooksLikeVersion(const std::string& path);

}  // namespace elasticdl::checkpoint::internal
