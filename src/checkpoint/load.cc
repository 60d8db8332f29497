// Loading: reads whole files, verifies checksums, then creates views of the
// tensors.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/crc32.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "layout.h"
#include "table_pieces.h"
#include "version_files.h"
#include "wire.h"

namespace elasticdl::checkpoint {
namespace {

using internal::Manifest;
using internal::ManifestFile;
using internal::ModelView;
using internal::VersionFiles;

// Size of one read: small enough that the checksum finds it in the CPU's cache.
constexpr size_t kReadBytes = 256 << 10;

// Reads the file in parts and verifies its size and, if `checked`, its
// checksum. `sink` provides the memory for each part; `progress` gets the
// number of bytes read.
absl::Status ReadChecked(const std::string& path, const ManifestFile& file,
                         bool checked,
                         const std::function<char*(size_t offset)>& sink,
                         const std::function<absl::Status(size_t)>& progress) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoToStatus(errno, absl::StrCat("open ", path));
  const size_t total = static_cast<size_t>(file.bytes);
  uint32_t crc = 0;
  size_t used = 0;
  while (used < total) {
    char* const part = sink(used);
    const ssize_t n = read(fd.get(), part, std::min(kReadBytes, total - used));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoToStatus(errno, absl::StrCat("read ", path));
    if (n == 0) {
      return absl::DataLossError(absl::StrCat("read ", path, ": ends at ", used,
                                              " of ", total, " bytes"));
    }
    crc = ExtendCrc32c(crc, {part, static_cast<size_t>(n)});
    used += static_cast<size_t>(n);
    ELASTICDL_RETURN_IF_ERROR(Failpoint("checkpoint.read"));
    if (progress) ELASTICDL_RETURN_IF_ERROR(progress(used));
  }
  if (checked && crc != file.crc32c) {
    return absl::DataLossError(
        absl::StrCat("read ", path, ": checksum differs"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadInto(
    const std::string& path, const ManifestFile& file, bool checked,
    const std::function<absl::Status(size_t)>& progress) {
  std::string data(static_cast<size_t>(file.bytes), '\0');
  ELASTICDL_RETURN_IF_ERROR(ReadChecked(
      path, file, checked, [&data](size_t at) { return data.data() + at; },
      progress));
  return data;
}

absl::Status SortUnique(std::vector<NamedTensor>& tensors,
                        const std::string& path) {
  std::sort(tensors.begin(), tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) {
              return a.name < b.name;
            });
  const auto twice =
      std::adjacent_find(tensors.begin(), tensors.end(),
                         [](const NamedTensor& a, const NamedTensor& b) {
                           return a.name == b.name;
                         });
  if (twice == tensors.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("read ", path, ": tensor '",
                                          twice->name, "' is there twice"));
}

template <typename T>
void MoveAll(std::vector<T>& from, std::vector<T>& to) {
  for (T& item : from) to.push_back(std::move(item));
}

// Of tables, until they are put together with their rows.
struct TableParts {
  std::vector<EmbeddingRows> slots;
  std::vector<EmbeddingRows> ranks;
};

absl::Status AddModel(const std::string& bytes, const std::string& path,
                      const std::string& kind, bool first, Loaded& loaded,
                      TableParts& parts) {
  ELASTICDL_ASSIGN_OR_RETURN(ModelView model,
                             internal::ParseModel(bytes, path));
  // Files of different steps in one version are a mixture that was never a
  // model.
  if (first) loaded.version = model.version;
  if (model.version != loaded.version) {
    return absl::DataLossError(
        absl::StrCat("read ", path, ": holds version ", model.version,
                     ", the other files version ", loaded.version));
  }
  if (kind == internal::kRanks) {
    MoveAll(model.embedding_tables, parts.ranks);
    return absl::OkStatus();
  }
  const bool slots = kind == internal::kOptimizer;
  MoveAll(model.dense_parameters, slots ? loaded.slots : loaded.variables);
  MoveAll(model.embedding_tables,
          slots ? parts.slots : loaded.embedding_tables);
  return absl::OkStatus();
}

absl::Status AddFile(const std::string& bytes, const std::string& name,
                     bool first, Loaded& loaded, TableParts& parts) {
  const std::string path = JoinPath(loaded.path, name);
  const std::optional<internal::ShardName> shard =
      internal::ParseShardName(name);
  if (shard.has_value()) {
    return AddModel(bytes, path, shard->kind, first, loaded, parts);
  }
  if (name == internal::kLedgerName) {
    v1::Ledger ledger;
    if (!ledger.ParseFromString(bytes)) {
      return absl::DataLossError(
          absl::StrCat("read ", path, ": not an encoded Ledger"));
    }
    loaded.ledger = std::move(ledger);
  }
  // Files with other names belong to later versions of the format.
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Loaded> Load(const std::string& path,
                            const LoadProgress& progress) {
  ELASTICDL_ASSIGN_OR_RETURN(const VersionFiles found,
                             internal::FindVersionFiles(path));
  const bool checked = found.manifest.has_value();
  Loaded loaded;
  loaded.path = path;
  int64_t total = 0;
  for (const ManifestFile& file : found.files) total += file.bytes;
  int64_t before = 0;
  const auto read = [&](size_t bytes) {
    return progress ? progress(before + static_cast<int64_t>(bytes), total)
                    : absl::OkStatus();
  };
  // Read all files before creating views: growing the vector moves short
  // strings (SSO), which would invalidate views into them.
  for (const ManifestFile& file : found.files) {
    ELASTICDL_ASSIGN_OR_RETURN(
        std::string bytes,
        ReadInto(JoinPath(path, file.name), file, checked, read));
    before += file.bytes;
    loaded.storage.push_back(std::move(bytes));
  }
  TableParts parts;
  for (size_t i = 0; i < found.files.size(); ++i) {
    ELASTICDL_RETURN_IF_ERROR(
        AddFile(loaded.storage[i], found.files[i].name, i == 0, loaded, parts));
  }
  ELASTICDL_RETURN_IF_ERROR(internal::JoinSlots(std::move(parts.slots),
                                                loaded.embedding_tables, path));
  ELASTICDL_RETURN_IF_ERROR(
      internal::JoinRanks(parts.ranks, loaded.embedding_tables, path));
  if (checked) {
    const Manifest& manifest = *found.manifest;
    loaded.version = manifest.version;
    loaded.lineage = manifest.lineage;
    loaded.optimizer = manifest.optimizer;
    loaded.optimizer_step = manifest.optimizer_step;
  }
  ELASTICDL_RETURN_IF_ERROR(SortUnique(loaded.variables, path));
  ELASTICDL_RETURN_IF_ERROR(SortUnique(loaded.slots, path));
  return loaded;
}

absl::Status Verify(const std::string& path) {
  ELASTICDL_ASSIGN_OR_RETURN(const VersionFiles found,
                             internal::FindVersionFiles(path));
  // Without checksums, everything that parses is good.
  if (!found.manifest.has_value()) return Load(path).status();
  std::vector<char> buffer(kReadBytes);
  for (const ManifestFile& file : found.files) {
    ELASTICDL_RETURN_IF_ERROR(ReadChecked(
        JoinPath(path, file.name), file, /*checked=*/true,
        [&buffer](size_t) { return buffer.data(); },
        /*progress=*/nullptr));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Ledger> LoadLedger(const std::string& path) {
  ELASTICDL_RETURN_IF_ERROR(Verify(path));
  const std::string file = JoinPath(path, internal::kLedgerName);
  ELASTICDL_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file));
  v1::Ledger ledger;
  if (!ledger.ParseFromString(bytes)) {
    return absl::DataLossError(
        absl::StrCat("read ", file, ": not an encoded Ledger"));
  }
  return ledger;
}

}  // namespace elasticdl::checkpoint
