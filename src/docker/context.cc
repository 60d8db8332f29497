#include "elasticdl/docker/context.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dockerignore.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/hash.h"
#include "elasticdl/common/status.h"
#include "tar_stream.h"

namespace elasticdl::docker {
namespace {

constexpr char kIgnoreFile[] = ".dockerignore";
constexpr size_t kHashBufferBytes = 1 << 16;

std::string Resolve(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) == nullptr ? "" : resolved;
}

absl::StatusOr<std::string> ReadLink(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t size = readlink(path.c_str(), target, sizeof(target));
  if (size < 0) return ErrnoToStatus(errno, absl::StrCat("read link ", path));
  return std::string(target, static_cast<size_t>(size));
}

// Walks a folder. Runs on the caller's thread, once.
class Walker {
 public:
  Walker(const std::string& root, const DockerIgnore& ignore,
         const std::string& dockerfile)
      : root_(root), ignore_(ignore), dockerfile_(dockerfile) {}

  absl::StatusOr<std::vector<ContextEntry>> Run() {
    ELASTICDL_RETURN_IF_ERROR(Folder(""));
    return std::move(entries_);
  }

 private:
  bool IsExcluded(const std::string& name) const {
    // The engine needs these two and excludes them from COPY itself.
    if (name == dockerfile_ || name == kIgnoreFile) return false;
    return ignore_.Excludes(name);
  }

  // Might something in this excluded folder be included again?
  bool MayHoldMore(const std::string& name) const {
    return ignore_.has_exceptions() ||
           absl::StartsWith(dockerfile_, absl::StrCat(name, "/"));
  }

  absl::Status Folder(const std::string& name) {
    const std::string path = JoinPath(root_, name);
    ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> children,
                               ListDirectory(path));
    for (const std::string& child : children) {
      ELASTICDL_RETURN_IF_ERROR(
          Entry(name.empty() ? child : absl::StrCat(name, "/", child)));
    }
    return absl::OkStatus();
  }

  absl::Status Entry(const std::string& name) {
    ContextEntry entry;
    entry.name = name;
    const std::string path = JoinPath(root_, name);
    struct stat info = {};
    if (lstat(path.c_str(), &info) != 0) {
      return ErrnoToStatus(errno, absl::StrCat("build context: ", path));
    }
    entry.mode = info.st_mode & 07777;
    entry.modified = info.st_mtim.tv_sec;
    const bool excluded = IsExcluded(name);
    if (S_ISDIR(info.st_mode)) {
      entry.type = ContextEntry::Type::kFolder;
      if (excluded && !MayHoldMore(name)) return absl::OkStatus();
      const size_t position = entries_.size();
      entries_.push_back(std::move(entry));
      ELASTICDL_RETURN_IF_ERROR(Folder(name));
      // Nothing in it was included again.
      if (excluded && entries_.size() == position + 1) entries_.pop_back();
      return absl::OkStatus();
    }
    if (excluded) return absl::OkStatus();
    if (S_ISLNK(info.st_mode)) {
      entry.type = ContextEntry::Type::kLink;
      ELASTICDL_ASSIGN_OR_RETURN(entry.target, ReadLink(path));
    } else if (S_ISREG(info.st_mode)) {
      entry.path = path;
      entry.size = info.st_size;
      if (access(path.c_str(), R_OK) != 0) {
        return ErrnoToStatus(
            errno, absl::StrCat("build context: read ", path,
                                " (leave it out with .dockerignore?)"));
      }
    } else {
      return absl::OkStatus();
    }
    entries_.push_back(std::move(entry));
    return absl::OkStatus();
  }

  const std::string& root_;
  const DockerIgnore& ignore_;
  const std::string& dockerfile_;
  std::vector<ContextEntry> entries_;
};

// The Dockerfile's name below `folder`, or "" when it is elsewhere.
std::string NameBelow(const std::string& folder, const std::string& file) {
  const std::string root = absl::StrCat(Resolve(folder), "/");
  const std::string full = Resolve(file);
  return absl::StartsWith(full, root) ? full.substr(root.size()) : "";
}

ContextEntry Generated(const std::string& name, const std::string& content) {
  ContextEntry entry;
  entry.name = name;
  entry.content = content;
  entry.size = static_cast<int64_t>(content.size());
  return entry;
}

// Adds a Dockerfile that is not in the folder, and lines to .dockerignore that
// exclude it (and a .dockerignore that the user did not write) from COPY.
void AddDockerfile(const std::string& text, const std::string& ignore_text,
                   BuildContext* context) {
  Sha256 hash;
  hash.Add(text);
  context->dockerfile = absl::StrCat(".dockerfile.", hash.Hex().substr(0, 16));
  const std::string hide = absl::StrCat(
      ignore_text, "\n", context->dockerfile, "\n",
      ignore_text.empty() ? absl::StrCat(kIgnoreFile, "\n") : std::string());
  std::vector<ContextEntry>& entries = context->entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].name == kIgnoreFile) {
      entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
  }
  entries.push_back(Generated(kIgnoreFile, hide));
  entries.push_back(Generated(context->dockerfile, text));
}

absl::StatusOr<std::string> ReadIgnoreFile(const std::string& folder) {
  absl::StatusOr<std::string> text = ReadFile(JoinPath(folder, kIgnoreFile));
  if (absl::IsNotFound(text.status())) return std::string();
  return text;
}

}  // namespace

absl::StatusOr<BuildContext> ReadContext(const ContextOptions& options) {
  if (!IsDirectory(options.folder)) {
    return absl::NotFoundError(
        absl::StrCat("build context: ", options.folder, " is not a folder"));
  }
  std::string text = options.dockerfile_text;
  BuildContext context;
  if (text.empty()) {
    context.dockerfile = NameBelow(options.folder, options.dockerfile);
    // Read even when it is in the folder, to report here that it is missing.
    ELASTICDL_ASSIGN_OR_RETURN(text, ReadFile(options.dockerfile));
  }
  ELASTICDL_ASSIGN_OR_RETURN(const std::string ignore_text,
                             ReadIgnoreFile(options.folder));
  ELASTICDL_ASSIGN_OR_RETURN(const DockerIgnore ignore,
                             DockerIgnore::Parse(ignore_text));
  Walker walker(options.folder, ignore, context.dockerfile);
  ELASTICDL_ASSIGN_OR_RETURN(context.entries, walker.Run());
  if (context.dockerfile.empty()) AddDockerfile(text, ignore_text, &context);
  for (const ContextEntry& entry : context.entries) {
    context.bytes += entry.size;
    context.num_files += entry.type == ContextEntry::Type::kFolder ? 0 : 1;
  }
  return context;
}

absl::StatusOr<std::string> HashContext(const BuildContext& context) {
  TarOptions options;
  options.with_times = false;
  TarStream tar(context.entries, options);
  Sha256 hash;
  std::string buffer(kHashBufferBytes, '\0');
  while (true) {
    ELASTICDL_ASSIGN_OR_RETURN(const size_t size,
                               tar.Read(buffer.data(), buffer.size()));
    if (size == 0) return hash.Hex();
    hash.Add(absl::string_view(buffer.data(), size));
  }
}

}  // namespace elasticdl::docker
