// Which versions a directory has, and which of them are complete.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "layout.h"
#include "version_files.h"

namespace elasticdl::checkpoint {

namespace {

// How often to retry when a writer deletes old versions while we read them.
constexpr int kTries = 100;

// The version at `path` if it is complete and has this number; otherwise the
// reason.
absl::StatusOr<Version> CheckComplete(const std::string& path,
                                      int64_t version) {
  ELASTICDL_ASSIGN_OR_RETURN(const internal::VersionFiles files,
                             internal::FindVersionFiles(path));
  if (files.manifest.has_value() && files.manifest->version != version) {
    return absl::DataLossError(absl::StrCat("its manifest is that of version ",
                                            files.manifest->version));
  }
  Version complete{version, path, Lineage()};
  if (files.manifest.has_value()) complete.lineage = files.manifest->lineage;
  return complete;
}

// Lists the directory once. Sets `vanished` if a version was deleted meanwhile:
// there may be a newer one that this listing missed.
absl::StatusOr<Listing> ListOnce(const std::string& dir, bool& vanished) {
  Listing listing;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(dir);
  if (absl::IsNotFound(names.status())) return listing;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const std::optional<int64_t> version = internal::ParseVersionName(name);
    if (!version.has_value()) continue;
    const std::string path = JoinPath(dir, name);
    absl::StatusOr<Version> complete = CheckComplete(path, *version);
    if (complete.ok()) {
      listing.versions.push_back(*std::move(complete));
    } else if (FileExists(path)) {
      listing.skipped.push_back(
          {path, std::string(complete.status().message())});
    } else {
      vanished = true;
    }
  }
  std::sort(
      listing.versions.begin(), listing.versions.end(),
      [](const Version& a, const Version& b) { return a.version < b.version; });
  return listing;
}

}  // namespace

absl::StatusOr<Listing> ListVersions(const std::string& dir) {
  Listing listing;
  for (int i = 0; i < kTries; ++i) {
    bool vanished = false;
    ELASTICDL_ASSIGN_OR_RETURN(listing, ListOnce(dir, vanished));
    // A directory listing is not a snapshot either: if it is empty, an old name
    // may just have been removed and the new one missed. List it again.
    if (!vanished && (!listing.versions.empty() || i > 0)) break;
  }
  return listing;
}

namespace {

absl::Status NothingFound(const std::string& dir,
                          const std::vector<Skipped>& skipped) {
  std::string message =
      absl::StrCat("find a checkpoint in ", dir, ": no complete version");
  if (!FileExists(dir)) {
    absl::StrAppend(&message, " (the directory does not exist)");
  }
  for (const Skipped& bad : skipped) {
    absl::StrAppend(&message, "; ", bad.path, ": ", bad.reason);
  }
  return absl::NotFoundError(message);
}

// Is the version at this path good?
using Check = std::function<absl::Status(const std::string& path)>;

// The newest version below `below` that is good. Sets `vanished` and returns
// nothing if one was deleted meanwhile.
absl::StatusOr<std::string> NewestGood(const std::string& dir,
                                       const Listing& listing, int64_t below,
                                       const Check& check, bool& vanished) {
  std::vector<Skipped> skipped = listing.skipped;
  for (auto it = listing.versions.rbegin(); it != listing.versions.rend();
       ++it) {
    if (it->version >= below) continue;
    const absl::Status status = check(it->path);
    if (status.ok()) return it->path;
    if (!FileExists(it->path)) {
      vanished = true;
      return std::string();
    }
    LogWarning("checkpoint: skip ", it->path, ": ", status.message());
    skipped.push_back({it->path, std::string(status.message())});
  }
  return NothingFound(dir, skipped);
}

// The folder `path`, or the newest good version in it.
absl::StatusOr<std::string> FindGood(const std::string& path, int64_t below,
                                     const Check& check) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  if (internal::LooksLikeVersion(trimmed)) {
    ELASTICDL_RETURN_IF_ERROR(check(trimmed));
    return trimmed;
  }
  // If a version is deleted while we read it, there is a newer one.
  for (int i = 0; i < kTries; ++i) {
    ELASTICDL_ASSIGN_OR_RETURN(const Listing listing, ListVersions(trimmed));
    bool vanished = false;
    ELASTICDL_ASSIGN_OR_RETURN(
        std::string found,
        NewestGood(trimmed, listing, below, check, vanished));
    if (!vanished) return found;
  }
  return absl::UnavailableError(absl::StrCat(
      "find a checkpoint in ", trimmed, ": versions come and go too fast"));
}

// No version is as high.
constexpr int64_t kAnyVersion = std::numeric_limits<int64_t>::max();

}  // namespace

absl::StatusOr<std::string> Resolve(const std::string& path) {
  return FindGood(path, kAnyVersion,
                  [](const std::string& version) { return Verify(version); });
}

absl::StatusOr<Head> FindHead(const std::string& path, int64_t below) {
  Head head;
  const auto read = [&](const std::string& folder) -> absl::Status {
    ELASTICDL_ASSIGN_OR_RETURN(head, ReadHead(folder));
    if (head.version < below) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat(folder, " is the only version"));
  };
  ELASTICDL_RETURN_IF_ERROR(FindGood(path, below, read).status());
  return head;
}

absl::StatusOr<Loaded> LoadResolved(const std::string& path) {
  Loaded loaded;
  const auto load = [&](const std::string& folder) -> absl::Status {
    ELASTICDL_ASSIGN_OR_RETURN(loaded, Load(folder));
    return absl::OkStatus();
  };
  ELASTICDL_RETURN_IF_ERROR(FindGood(path, kAnyVersion, load).status());
  return loaded;
}

}  // namespace elasticdl::checkpoint
