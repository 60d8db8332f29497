// Folders with temporary names, which readers ignore.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/common/file.h"

namespace elasticdl::checkpoint::internal {

// A new folder `<dir>/.tmp-<label>-<node>-…`, removed with its contents unless
// it is renamed. A lock on it tells other processes on this machine that its
// owner is alive. Move-only. Thread-compatible.
class ScratchFolder {
 public:
  static absl::StatusOr<ScratchFolder> Create(const std::string& dir,
                                              const std::string& label);
  ~ScratchFolder();
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;

  const std::string& path() const { return path_; }

  // Gives the folder its final name in one step. An existing folder of that
  // name is swapped and deleted with this object. The caller must sync `dir`
  // afterwards.
  absl::Status Publish(const std::string& final_path);

 private:
  ScratchFolder(std::string path, Fd lock);

  // Empty = nothing to remove.
  std::string path_;
  Fd lock_;
};

// Removes temporary folders in `dir` whose owner is dead (killed while saving
// or deleting). On a network file system, locks of other machines are not
// visible, so their folders are removed only if nothing in them has changed for
// a day before `now` (wall clock). Failures are logged: they only cost disk
// space.
void RemoveAbandoned(const std::string& dir, absl::Time now);

// Identifies the machine until it reboots: processes with the same value see
// each other's locks, even in different containers.
const std::string& NodeName();

// Deletes a version so that it is never seen half deleted.
absl::Status DeleteVersion(const std::string& dir, const std::string& path);

}  // namespace elasticdl::checkpoint::internal
