#include "version_files.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"

namespace elasticdl::checkpoint::internal {
namespace {

absl::StatusOr<int64_t> FileBytes(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("stat ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::DataLossError(absl::StrCat(path, " is not a regular file"));
  }
  return info.st_size;
}

absl::StatusOr<VersionFiles> FromManifest(const std::string& path,
                                          const std::string& manifest_path) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text, ReadFile(manifest_path));
  ELASTICDL_ASSIGN_OR_RETURN(Manifest manifest,
                             ParseManifest(text, manifest_path));
  for (const ManifestFile& file : manifest.files) {
    const std::string file_path = JoinPath(path, file.name);
    ELASTICDL_ASSIGN_OR_RETURN(const int64_t bytes, FileBytes(file_path));
    if (bytes != file.bytes) {
      return absl::DataLossError(absl::StrCat(
          file_path, " has ", bytes, " bytes instead of ", file.bytes));
    }
  }
  VersionFiles found;
  found.files = manifest.files;
  found.manifest = std::move(manifest);
  return found;
}

// Python ElasticDL: complete if all N files variables-*-of-N exist.
absl::StatusOr<VersionFiles> FromNames(const std::string& path) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             ListDirectory(path));
  VersionFiles found;
  int64_t count = 0;
  for (const std::string& name : names) {
    const std::optional<ShardName> shard = ParseShardName(name);
    if (!shard.has_value() || shard->kind != kVariables) continue;
    if (count != 0 && shard->count != count) {
      return absl::DataLossError(absl::StrCat(path, " has files of ", count,
                                              " and files of ", shard->count));
    }
    count = shard->count;
    ELASTICDL_ASSIGN_OR_RETURN(const int64_t bytes,
                               FileBytes(JoinPath(path, name)));
    found.files.push_back({name, bytes, 0});
  }
  if (count == 0) {
    return absl::NotFoundError(
        absl::StrCat(path, " has no manifest and no variables"));
  }
  if (static_cast<int64_t>(found.files.size()) != count) {
    return absl::DataLossError(absl::StrCat(path, " has ", found.files.size(),
                                            " of ", count, " variables files"));
  }
  return found;
}

}  // namespace

absl::StatusOr<VersionFiles> FindVersionFiles(const std::string& path) {
  const std::string manifest_path = JoinPath(path, kManifestName);
  if (FileExists(manifest_path)) return FromManifest(path, manifest_path);
  return FromNames(path);
}

bool LooksLikeVersion(const std::string& path) {
  if (FileExists(JoinPath(path, kManifestName))) return true;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(path);
  if (!names.ok()) return false;
  for (const std::string& name : *names) {
    if (ParseShardName(name).has_value()) return true;
  }
  return false;
}

}  // namespace elasticdl::checkpoint::internal
