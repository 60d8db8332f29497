// Loading: finds the tensors in all files, decides where each one goes, then
// reads every byte once.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/crc32.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "layout.h"
#include "read_files.h"
#include "table_pieces.h"
#include "version_files.h"
#include "wire.h"

namespace elasticdl::checkpoint {
namespace {

using internal::FileToRead;
using internal::Manifest;
using internal::ManifestFile;
using internal::ModelIndex;
using internal::Range;
using internal::VersionFiles;

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

FileToRead ToRead(const std::string& path, const ManifestFile& file,
                  bool checked) {
  FileToRead out;
  out.path = JoinPath(path, file.name);
  out.bytes = file.bytes;
  if (checked) out.crc32c = file.crc32c;
  return out;
}

absl::StatusOr<ModelIndex> IndexFile(const std::string& path) {
  internal::FileSource source(path);
  ELASTICDL_RETURN_IF_ERROR(source.status());
  return internal::IndexModel(source, path);
}

// Files of different steps in one version are a mixture that was never a model.
absl::Status CheckVersion(const ModelIndex& model, const std::string& path,
                          std::optional<int64_t>& version) {
  if (!version.has_value()) version = model.version;
  if (model.version == *version) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("read ", path, ": holds version ", model.version,
                   ", the other files version ", *version));
}

absl::StatusOr<v1::Ledger> ParseLedger(const std::string& bytes,
                                       const std::string& path) {
  v1::Ledger ledger;
  if (!ledger.ParseFromString(bytes)) {
    return absl::DataLossError(
        absl::StrCat("read ", path, ": not an encoded Ledger"));
  }
  return ledger;
}

// Reads one version: Prepare, then Read.
class Loader {
 public:
  Loader(const std::string& path, const VersionFiles& found,
         const LoadOptions& options)
      : found_(found), options_(options) {
    loaded_.path = path;
  }

  // Finds everything and decides where it goes.
  absl::Status Prepare() {
    for (const ManifestFile& file : found_.files) {
      ELASTICDL_RETURN_IF_ERROR(AddFile(file));
    }
    loaded_.version = version_.value_or(0);
    if (found_.manifest.has_value()) {
      loaded_.version = found_.manifest->version;
      loaded_.lineage = found_.manifest->lineage;
      loaded_.optimizer = found_.manifest->optimizer;
      loaded_.optimizer_step = found_.manifest->optimizer_step;
    }
    ELASTICDL_RETURN_IF_ERROR(SortUnique(loaded_.variables, loaded_.path));
    ELASTICDL_RETURN_IF_ERROR(SortUnique(loaded_.slots, loaded_.path));
    if (options_.place) ELASTICDL_RETURN_IF_ERROR(options_.place(loaded_));
    return PlaceTensors();
  }

  absl::StatusOr<Loaded> Read() {
    ELASTICDL_RETURN_IF_ERROR(
        internal::ReadFiles(std::move(files_), options_.progress));
    ELASTICDL_RETURN_IF_ERROR(JoinTables());
    if (ledger_.has_value()) {
      ELASTICDL_ASSIGN_OR_RETURN(
          loaded_.ledger,
          ParseLedger(*ledger_, JoinPath(loaded_.path, internal::kLedgerName)));
    }
    return std::move(loaded_);
  }

 private:
  // Where the bytes of a tensor are.
  struct Content {
    size_t file = 0;
    Range range;
    std::string name;
    bool slot = false;
  };
  // A part of a table, or of its slots or ranks, and its encoded ids.
  struct Rows {
    EmbeddingRows rows;
    std::vector<std::string> ids;
    std::string path;
    std::string kind;
  };

  absl::Status AddFile(const ManifestFile& file) {
    const std::optional<internal::ShardName> shard =
        internal::ParseShardName(file.name);
    if (shard.has_value() && shard->kind != internal::kVariables &&
        options_.only_model) {
      return absl::OkStatus();
    }
    // Files with other names belong to later versions of the format.
    files_.push_back(ToRead(loaded_.path, file, found_.manifest.has_value()));
    ++loaded_.num_files;
    loaded_.file_bytes += file.bytes;
    if (shard.has_value()) return AddModel(shard->kind);
    if (file.name == internal::kLedgerName) {
      ledger_.emplace(static_cast<size_t>(file.bytes), '\0');
      files_.back().parts.push_back({{0, file.bytes}, ledger_->data()});
    }
    return absl::OkStatus();
  }

  absl::Status AddModel(const std::string& kind) {
    FileToRead& file = files_.back();
    ELASTICDL_ASSIGN_OR_RETURN(ModelIndex model, IndexFile(file.path));
    ELASTICDL_RETURN_IF_ERROR(CheckVersion(model, file.path, version_));
    const bool slots = kind == internal::kOptimizer;
    // Ranks are of tables only.
    if (kind == internal::kRanks) model.dense_parameters.clear();
    for (ModelIndex::Tensor& tensor : model.dense_parameters) {
      contents_.push_back(
          {files_.size() - 1, tensor.content, tensor.tensor.name, slots});
      NamedTensor& added = (slots ? loaded_.slots : loaded_.variables)
                               .emplace_back(std::move(tensor.tensor));
      added.bytes =
          absl::MakeConstSpan(static_cast<const char*>(nullptr),
                              static_cast<size_t>(tensor.content.size));
    }
    for (ModelIndex::Table& table : model.embedding_tables) {
      AddRows(kind, table, file);
    }
    return absl::OkStatus();
  }

  void AddRows(const std::string& kind, ModelIndex::Table& from,
               FileToRead& file) {
    Rows& part = rows_.emplace_back();
    part.kind = kind;
    part.path = file.path;
    part.rows.name = from.rows.name;
    part.rows.rows = std::move(from.rows);
    const auto size = static_cast<size_t>(from.content.size);
    char* const to = loaded_.Allocate(size);
    part.rows.rows.bytes = absl::MakeConstSpan(to, size);
    file.parts.push_back({from.content, to});
    part.ids.reserve(from.ids.size());
    for (const Range& ids : from.ids) {
      std::string& bytes =
          part.ids.emplace_back(static_cast<size_t>(ids.size), '\0');
      file.parts.push_back({ids, bytes.data()});
    }
    // Who places the variables may want to know the tables.
    if (kind == internal::kVariables) {
      EmbeddingRows& table = loaded_.embedding_tables.emplace_back();
      table.name = part.rows.name;
      table.rows = part.rows.rows;
    }
  }

  // In memory of ours, unless somebody has another place.
  absl::Status PlaceTensors() {
    for (const Content& content : contents_) {
      std::vector<NamedTensor>& tensors =
          content.slot ? loaded_.slots : loaded_.variables;
      const auto tensor =
          std::lower_bound(tensors.begin(), tensors.end(), content.name,
                           [](const NamedTensor& t, const std::string& n) {
                             return t.name < n;
                           });
      const size_t size = tensor->bytes.size();
      if (tensor->bytes.data() == nullptr) {
        tensor->bytes = absl::MakeConstSpan(loaded_.Allocate(size), size);
      }
      if (static_cast<int64_t>(size) != content.range.size) {
        return absl::InternalError(
            absl::StrCat("the place of ", content.name, " has ", size,
                         " bytes instead of ", content.range.size));
      }
      files_[content.file].parts.push_back(
          {content.range, const_cast<char*>(tensor->bytes.data())});
    }
    return absl::OkStatus();
  }

  absl::Status JoinTables() {
    loaded_.embedding_tables.clear();
    std::vector<EmbeddingRows> slots;
    std::vector<EmbeddingRows> ranks;
    for (Rows& part : rows_) {
      for (std::string& ids : part.ids) {
        ELASTICDL_RETURN_IF_ERROR(internal::AddIds(ids, part.path, part.rows));
        ids = std::string();
      }
      ELASTICDL_RETURN_IF_ERROR(internal::CheckIds(part.rows, part.path));
      (part.kind == internal::kVariables   ? loaded_.embedding_tables
       : part.kind == internal::kOptimizer ? slots
                                           : ranks)
          .push_back(std::move(part.rows));
    }
    ELASTICDL_RETURN_IF_ERROR(internal::JoinSlots(
        std::move(slots), loaded_.embedding_tables, loaded_.path));
    return internal::JoinRanks(ranks, loaded_.embedding_tables, loaded_.path);
  }

  const VersionFiles& found_;
  const LoadOptions& options_;
  Loaded loaded_;
  std::optional<int64_t> version_;
  std::vector<FileToRead> files_;
  std::vector<Content> contents_;
  std::vector<Rows> rows_;
  std::optional<std::string> ledger_;
};

// Of a version without a manifest.
absl::StatusOr<int64_t> IndexAll(const std::string& path,
                                 const VersionFiles& found) {
  std::optional<int64_t> version;
  for (const ManifestFile& file : found.files) {
    const std::string file_path = JoinPath(path, file.name);
    ELASTICDL_ASSIGN_OR_RETURN(const ModelIndex model, IndexFile(file_path));
    ELASTICDL_RETURN_IF_ERROR(CheckVersion(model, file_path, version));
  }
  return version.value_or(0);
}

}  // namespace

absl::StatusOr<Loaded> Load(const std::string& path,
                            const LoadOptions& options) {
  ELASTICDL_ASSIGN_OR_RETURN(const VersionFiles found,
                             internal::FindVersionFiles(path));
  Loader loader(path, found, options);
  if (absl::Status status = loader.Prepare(); !status.ok()) {
    // Nothing was verified yet: what is wrong may be the bytes of a file.
    if (found.manifest.has_value()) {
      ELASTICDL_RETURN_IF_ERROR(Verify(path, options.progress));
    }
    return status;
  }
  return loader.Read();
}

absl::Status Verify(const std::string& path, const LoadProgress& progress) {
  ELASTICDL_ASSIGN_OR_RETURN(const VersionFiles found,
                             internal::FindVersionFiles(path));
  // Without checksums, everything that parses is good.
  if (!found.manifest.has_value()) return IndexAll(path, found).status();
  std::vector<FileToRead> files;
  for (const ManifestFile& file : found.files) {
    files.push_back(ToRead(path, file, /*checked=*/true));
  }
  return internal::ReadFiles(std::move(files), progress);
}

absl::StatusOr<bool> HasChecksums(const std::string& path) {
  ELASTICDL_ASSIGN_OR_RETURN(const VersionFiles found,
                             internal::FindVersionFiles(path));
  return found.manifest.has_value();
}

absl::StatusOr<Head> ReadHead(const std::string& path) {
  ELASTICDL_ASSIGN_OR_RETURN(const VersionFiles found,
                             internal::FindVersionFiles(path));
  Head head;
  head.path = path;
  if (!found.manifest.has_value()) {
    ELASTICDL_ASSIGN_OR_RETURN(head.version, IndexAll(path, found));
    return head;
  }
  head.version = found.manifest->version;
  head.lineage = found.manifest->lineage;
  for (const ManifestFile& file : found.files) {
    if (file.name != internal::kLedgerName) continue;
    const std::string name = JoinPath(path, file.name);
    ELASTICDL_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(name));
    if (Crc32c(bytes) != file.crc32c) {
      return absl::DataLossError(
          absl::StrCat("read ", name, ": checksum differs"));
    }
    ELASTICDL_ASSIGN_OR_RETURN(head.ledger, ParseLedger(bytes, name));
  }
  return head;
}

}  // namespace elasticdl::checkpoint
