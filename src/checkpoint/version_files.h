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
  // With a manifest: its files. Without: the names and sizes found.
  std::vector<ManifestFile> files;
};

// Finds the files and checks that all of them exist and have the right size.
// Reads only the manifest. NOT_FOUND or DATA_LOSS names the bad file.
absl::StatusOr<VersionFiles> FindVersionFiles(const std::string& path);

// Does `path` contain files of a checkpoint, complete or not?
bool LooksLikeVersion(const std::string& path);

}  // namespace elasticdl::checkpoint::internal
