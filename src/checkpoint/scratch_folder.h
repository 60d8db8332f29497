// Folders under a temporary name, which readers never look at.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"

namespace elasticdl::checkpoint::internal {

// A new folder `<dir>/.tmp-…`, removed with its contents unless it was renamed.
// A lock on it tells other processes that its owner lives. Move-only.
// Thread-compatible.
class ScratchFolder {
 public:
  static absl::StatusOr<ScratchFolder> Create(const std::string& dir,
                                              const std::string& label);
  ~ScratchFolder();
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;

  const std::string& path() const { return path_; }

  // Gives the folder its final name in one step. A folder of that name is
  // exchanged and goes with this object. The caller syncs `dir` after it.
  absl::Status Publish(const std::string& final_path);

 private:
  ScratchFolder(std::string path, Fd lock);

  // Empty = nothing to remove.
  std::string path_;
  Fd lock_;
};

// Removes temporary folders in `dir` whose owner is dead (killed while saving
// or deleting). Failures are logged: they cost disk space only.
void RemoveAbandoned(const std::string& dir);

// Deletes a version so that it is never seen half deleted.
absl::Status DeleteVersion(const std::string& dir, const std::string& path);

}  // namespace elasticdl::checkpoint::internal
