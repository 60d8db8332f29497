// Checkpoints on disk: durable, atomic, versioned. docs/formats.md describes
// the files.
//
// All functions are thread-safe. Several processes may save into and read from
// one directory; a version becomes visible by one rename, complete or not at
// all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/checkpoint/snapshot.h"

namespace elasticdl::checkpoint {

struct SaveOptions {
  // How many complete versions stay (--keep_checkpoint_max); 0 or
  // below = all.
  int keep_max = 0;
  // Tensors go on in a further variables-i-of-N.ckpt above this size. Protocol
  // Buffers cannot read a message above 2 GiB.
  int64_t max_file_bytes = int64_t{1} << 30;
};

// Writes `<dir>/version-<V>` and returns its path once it is on the disk. `dir`
// is made if it is missing. A version of the same number is replaced.
// Then, and only then, the oldest complete versions before V are deleted down
// to `keep_max` (a failure of that is logged, not returned: the checkpoint is
// there). Versions above V and incomplete ones are left alone.
// Errors: INVALID_ARGUMENT (names twice, bytes that do not fit the shape),
// RESOURCE_EXHAUSTED (disk full), what the file system says. After an error
// the directory holds what it held before (if the very last fsync failed, the
// new version too).
absl::StatusOr<std::string> Save(const std::string& dir,
                                 const Snapshot& snapshot,
                                 const SaveOptions& options = {});

struct Version {
  int64_t version = 0;
  std::string path;
};

// A version-* folder that cannot be used, and why.
struct Skipped {
  std::string path;
  std::string reason;
};

struct Listing {
  // Complete ones, oldest first.
  std::vector<Version> versions;
  std::vector<Skipped> skipped;
};

// The versions in `dir`. Complete means: every file of the manifest is there
// in its size; without a manifest (Python ElasticDL) all N of the N files are
// there. A missing `dir` has no versions. Contents are not read.
absl::StatusOr<Listing> ListVersions(const std::string& dir);

// The newest complete version. NOT_FOUND says what was skipped and why.
absl::StatusOr<Version> Newest(const std::string& dir);

// --checkpoint_dir_for_init: `path` is a version-V folder, or a directory of
// them. Gives the folder, or the newest complete one in which every file has
// its checksum (bad ones are logged and skipped). NOT_FOUND if there is none;
// DATA_LOSS if the named folder itself is bad.
absl::StatusOr<std::string> Resolve(const std::string& path);

// Reads all files of a version-V folder and compares their checksums.
// DATA_LOSS names the file that is bad, NOT_FOUND the one that is missing.
absl::StatusOr<Loaded> Load(const std::string& path);

// Compares checksums only; needs no memory for the tensors.
absl::Status Verify(const std::string& path);

}  // namespace elasticdl::checkpoint
