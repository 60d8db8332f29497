// Checkpoints on disk: durable, atomic, versioned. docs/formats.md describes
// the files.
//
// All functions are thread-safe. Several processes may save to and read from
// one directory. A version becomes visible with one rename, either complete or
// not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/checkpoint/snapshot.h"

namespace elasticdl::checkpoint {

struct SaveOptions {
  // How many complete versions to keep (--keep_checkpoint_max); 0 or less =
  // all.
  int keep_max = 0;
  // Above this size, tensors continue in another variables-i-of-N.ckpt.
  // Protocol Buffers cannot read a message above 2 GiB.
  int64_t max_file_bytes = int64_t{1} << 30;
};

// Writes `<dir>/version-<V>` and returns its path once it is on the disk. `dir`
// is created if it is missing. A version of the same number is replaced. Only
// then are the oldest complete versions before V deleted until `keep_max` are
// left. A failure to delete is logged, not returned, because the checkpoint was
// saved. Versions above V and incomplete ones are not touched. Errors:
// INVALID_ARGUMENT (duplicate names, bytes that do not match the shape, parts
// of a table that do not go together), FAILED_PRECONDITION (its lineage is
// fenced), RESOURCE_EXHAUSTED (disk full), or the file system's error. After an
// error the directory has the same contents as before (and the new version, if
// only the last fsync failed).
absl::StatusOr<std::string> Save(const std::string& dir,
                                 const Snapshot& snapshot,
                                 const SaveOptions& options = {});

// From now on, older lineages of the same run can neither save to `dir` nor
// delete anything there, on whatever machine they run. Does nothing if `dir`
// does not exist.
absl::Status Fence(const std::string& dir, const Lineage& lineage);

struct Version {
  int64_t version = 0;
  std::string path;
  Lineage lineage;
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

// The versions in `dir`. A version is complete if every file in the manifest
// exists and has the listed size; without a manifest (Python ElasticDL), if all
// N files exist. A missing `dir` has no versions. Contents are not read.
absl::StatusOr<Listing> ListVersions(const std::string& dir);

// --checkpoint_dir_for_init: `path` is a version-V folder or a directory of
// them. Returns the folder, or the newest complete one whose checksums match
// (bad ones are logged and skipped). Reads everything. NOT_FOUND if there is
// none; DATA_LOSS if the named folder itself is bad.
absl::StatusOr<std::string> Resolve(const std::string& path);

// What a version is, without its tensors.
struct Head {
  std::string path;
  int64_t version = 0;
  Lineage lineage;
  std::optional<v1::Ledger> ledger;
};

// Reads only the manifest and the ledger, and their checksums; without a
// manifest, the names and shapes of the tensors. Of the other files it checks
// existence and size: damage inside them is found by Load. DATA_LOSS names a
// damaged file, NOT_FOUND a missing one.
absl::StatusOr<Head> ReadHead(const std::string& path);

// Like Resolve, but reads only heads. In a directory, the newest version below
// `below`; NOT_FOUND if there is none, also for a named folder that is not.
absl::StatusOr<Head> FindHead(
    const std::string& path,
    int64_t below = std::numeric_limits<int64_t>::max());

// Called repeatedly while a version is read, with the bytes read so far and the
// total. If it returns an error, reading stops and returns that error.
using LoadProgress =
    std::function<absl::Status(int64_t bytes, int64_t total_bytes)>;

struct LoadOptions {
  LoadProgress progress = {};
  // Called once, when names, types and shapes are known, but no bytes: all
  // tensors have null pointers, and tables no ids, slots or ranks. It may set
  // the `bytes` of variables and slots to memory of their size, which is then
  // written: directly, by several threads, and before the checksums are known,
  // so after an error it holds anything. Tensors that stay null get memory of
  // their own. The names are not verified yet.
  std::function<absl::Status(Loaded& loaded)> place = {};
  // Without the optimizer's state and ranks: their files are not read.
  bool only_model = false;
};

// Reads all files of a version-V folder once, several parts at a time, and
// verifies their checksums. DATA_LOSS names a damaged file, NOT_FOUND a missing
// one.
absl::StatusOr<Loaded> Load(const std::string& path,
                            const LoadOptions& options = {});

// Load of what Resolve would return, without reading it twice.
absl::StatusOr<Loaded> LoadResolved(const std::string& path);

// Only verifies checksums; needs no memory for the tensors. Without a manifest
// there are none: then, what ReadHead does.
absl::Status Verify(const std::string& path, const LoadProgress& progress = {});
// Whether the version at `path` has a manifest.
absl::StatusOr<bool> HasChecksums(const std::string& path);

}  // namespace elasticdl::checkpoint
