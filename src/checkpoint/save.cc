// Saving: writes all files to a temporary folder, then renames it.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/checkpoint/late_ledger.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "file_writer.h"
#include "layout.h"
#include "live_writer.h"
#include "scratch_folder.h"
#include "table_pieces.h"
#include "wire.h"

namespace elasticdl::checkpoint {
namespace {

using internal::FileWriter;
using internal::Manifest;
using internal::ManifestFile;
using internal::TablePiece;

// Ids that are encoded together; they fit into the buffer of a FileWriter.
constexpr size_t kIdsAtATime = 16384;

absl::Status SyncFolder(const std::string& path) {
  ELASTICDL_RETURN_IF_ERROR(Failpoint("checkpoint.fsync"));
  return SyncDirectory(path);
}

absl::StatusOr<ManifestFile> WriteWhole(const std::string& folder,
                                        const char* name,
                                        absl::string_view data) {
  FileWriter writer(folder, name);
  writer.Append(data);
  return writer.Finish();
}

absl::Status CheckTensors(const std::vector<NamedTensor>& tensors,
                          absl::string_view what) {
  std::set<absl::string_view> names;
  for (const NamedTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "save checkpoint: ", what, " '", tensor.name, "' is there twice"));
    }
    const int64_t expected = internal::ExpectedBytes(tensor);
    if (expected < 0 || expected != static_cast<int64_t>(tensor.bytes.size())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "save checkpoint: ", what, " ", Describe(tensor), " has ",
          tensor.bytes.size(), " bytes instead of ", expected));
    }
  }
  return absl::OkStatus();
}

// What goes into one file as a whole: a tensor, or rows of a table.
struct Item {
  const NamedTensor* tensor = nullptr;
  const TablePiece* piece = nullptr;
  // Of the table; absent: the values.
  std::optional<size_t> slot = {};
  // Its ranks instead.
  bool ranks = false;

  int64_t bytes() const {
    return tensor != nullptr ? static_cast<int64_t>(tensor->bytes.size())
                             : piece->bytes;
  }
};

// Of the rows of a segment.
absl::Span<const char> Content(const Item& item,
                               const TablePiece::Segment& segment) {
  const TableRows& part = *segment.part;
  if (item.ranks) {
    return {reinterpret_cast<const char*>(part.ranks.data() + segment.begin),
            segment.count * sizeof(int64_t)};
  }
  const absl::Span<const float> values =
      item.slot.has_value() ? part.slots[*item.slot].values : part.values;
  const auto dim = static_cast<size_t>(part.dim);
  return {reinterpret_cast<const char*>(values.data() + segment.begin * dim),
          segment.count * dim * sizeof(float)};
}

void WritePiece(const Item& item, FileWriter& writer) {
  const TableRows& table = *item.piece->table;
  int64_t id_bytes = 0;
  for (const TablePiece::Segment& segment : item.piece->segments) {
    id_bytes += internal::EncodedIdBytes(
        segment.part->ids.subspan(segment.begin, segment.count));
  }
  const std::string name =
      item.slot.has_value() ? SlotName(table.name, table.slots[*item.slot].name)
                            : table.name;
  writer.Append(internal::EncodeRowsHeader(
      name, item.piece->rows, item.ranks ? 1 : table.dim, id_bytes,
      item.ranks ? v1::DT_INT64 : v1::DT_FLOAT));
  for (const TablePiece::Segment& segment : item.piece->segments) {
    const absl::Span<const char> content = Content(item, segment);
    writer.Append({content.data(), content.size()});
  }
  writer.Append(internal::EncodeIdsHeader(id_bytes));
  for (const TablePiece::Segment& segment : item.piece->segments) {
    for (size_t i = 0; i < segment.count; i += kIdsAtATime) {
      std::string bytes;
      internal::AppendIds(
          segment.part->ids.subspan(segment.begin + i,
                                    std::min(kIdsAtATime, segment.count - i)),
          bytes);
      writer.Append(bytes);
    }
  }
}

std::vector<std::vector<Item>> Divide(const std::vector<Item>& items,
                                      int64_t max_bytes) {
  std::vector<int64_t> sizes;
  sizes.reserve(items.size());
  for (const Item& item : items) sizes.push_back(item.bytes());
  std::vector<std::vector<Item>> files;
  size_t begin = 0;
  for (const size_t end : internal::CutIntoFiles(sizes, max_bytes)) {
    files.emplace_back(items.begin() + static_cast<std::ptrdiff_t>(begin),
                       items.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  return files;
}

// `infos` come at the beginning of the first file.
absl::Status WriteItems(const std::string& folder, const char* kind,
                        const std::vector<Item>& items,
                        const std::string& infos, int64_t max_bytes,
                        Manifest& manifest) {
  const auto files = Divide(items, max_bytes);
  for (size_t i = 0; i < files.size(); ++i) {
    FileWriter writer(folder, internal::FormatShardName(kind, i, files.size()));
    writer.Append(internal::EncodeModelVersion(manifest.version));
    if (i == 0) writer.Append(infos);
    for (const Item& item : files[i]) {
      if (item.tensor != nullptr) {
        writer.Append(internal::EncodeTensorHeader(*item.tensor));
        writer.Append({item.tensor->bytes.data(), item.tensor->bytes.size()});
      } else {
        WritePiece(item, writer);
      }
    }
    ELASTICDL_ASSIGN_OR_RETURN(ManifestFile entry, writer.Finish());
    manifest.files.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

std::vector<Item> TensorItems(absl::Span<const NamedTensor> tensors) {
  std::vector<Item> items;
  for (const NamedTensor& tensor : tensors) {
    items.push_back({&tensor, nullptr, {}});
  }
  return items;
}

absl::Status WriteModel(const std::string& folder, const Snapshot& snapshot,
                        int64_t max_bytes, Manifest& manifest) {
  if (snapshot.live != nullptr) {
    return internal::WriteLive(folder, snapshot, max_bytes, manifest);
  }
  const std::vector<std::vector<TablePiece>> tables =
      internal::CutTables(snapshot.tables, max_bytes);
  std::vector<Item> variables = TensorItems(snapshot.variables);
  std::vector<Item> slots = TensorItems(snapshot.slots);
  std::vector<Item> ranks;
  std::string infos;
  for (const std::vector<TablePiece>& pieces : tables) {
    const TableRows& table = *pieces[0].table;
    infos += internal::EncodeTableInfo(table);
    for (const TablePiece& piece : pieces) {
      variables.push_back({nullptr, &piece, {}});
    }
    for (size_t slot = 0; slot < table.slots.size(); ++slot) {
      for (const TablePiece& piece : pieces) {
        slots.push_back({nullptr, &piece, slot});
      }
    }
    for (const TablePiece& piece : pieces) {
      if (!table.ranks.empty()) ranks.push_back({nullptr, &piece, {}, true});
    }
  }
  ELASTICDL_RETURN_IF_ERROR(WriteItems(folder, internal::kVariables, variables,
                                       infos, max_bytes, manifest));
  if (!slots.empty()) {
    ELASTICDL_RETURN_IF_ERROR(WriteItems(folder, internal::kOptimizer, slots,
                                         "", max_bytes, manifest));
  }
  if (ranks.empty()) return absl::OkStatus();
  return WriteItems(folder, internal::kRanks, ranks, "", max_bytes, manifest);
}

// Gives the snapshot its ledger and run, if they were not known before.
absl::Status WriteAllFiles(const std::string& folder,
                           const SaveOptions& options, Snapshot& snapshot) {
  Manifest manifest;
  manifest.version = snapshot.version;
  manifest.optimizer = snapshot.optimizer;
  manifest.optimizer_step = snapshot.optimizer_step;
  manifest.signature =
      internal::ModelSignature(snapshot.variables, snapshot.tables);
  manifest.created = Clock::Real().WallNow();
  ELASTICDL_RETURN_IF_ERROR(
      WriteModel(folder, snapshot, options.max_file_bytes, manifest));
  if (snapshot.late != nullptr) {
    ELASTICDL_ASSIGN_OR_RETURN(LateLedger::Answer answer,
                               snapshot.late->Wait());
    snapshot.ledger = std::move(answer.ledger);
    snapshot.lineage.run = std::move(answer.run);
  }
  manifest.lineage = snapshot.lineage;
  if (snapshot.ledger.has_value()) {
    ELASTICDL_ASSIGN_OR_RETURN(
        ManifestFile entry, WriteWhole(folder, internal::kLedgerName,
                                       snapshot.ledger->SerializeAsString()));
    manifest.files.push_back(std::move(entry));
  }
  ELASTICDL_RETURN_IF_ERROR(WriteWhole(folder, internal::kManifestName,
                                       internal::FormatManifest(manifest))
                                .status());
  return SyncFolder(folder);
}

// Creates `dir` and missing parent folders, and makes their names durable: each
// name is an entry of the folder above.
absl::Status PrepareDirectory(const std::string& dir) {
  if (dir.empty() || IsDirectory(dir)) return absl::OkStatus();
  const std::filesystem::path path(dir);
  // "a/b/" has the parent "a/b".
  if (!path.has_filename()) return PrepareDirectory(path.parent_path());
  ELASTICDL_RETURN_IF_ERROR(PrepareDirectory(path.parent_path()));
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(dir));
  return SyncFolder(path.has_parent_path() ? path.parent_path().string() : ".");
}

// FAILED_PRECONDITION if the run was rolled back after this lineage.
absl::Status CheckFence(const std::string& dir, const Lineage& lineage) {
  const std::string path = JoinPath(dir, internal::kFenceName);
  if (lineage.run.empty() || !FileExists(path)) return absl::OkStatus();
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ELASTICDL_ASSIGN_OR_RETURN(const Lineage fence,
                             internal::ParseFence(text, path));
  if (!lineage.IsAbandonedBy(fence)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the job began again from an older model (generation ", fence.generation,
      ") after this one (generation ", lineage.generation, ")"));
}

absl::Status WriteVersion(const std::string& dir, const std::string& name,
                          const SaveOptions& options, Snapshot snapshot) {
  ELASTICDL_ASSIGN_OR_RETURN(internal::ScratchFolder folder,
                             internal::ScratchFolder::Create(dir, name));
  ELASTICDL_RETURN_IF_ERROR(WriteAllFiles(folder.path(), options, snapshot));
  // Check only now, because writing the files may have taken minutes.
  ELASTICDL_RETURN_IF_ERROR(CheckFence(dir, snapshot.lineage));
  ELASTICDL_RETURN_IF_ERROR(folder.Publish(JoinPath(dir, name)));
  // A version that was replaced is deleted after this, with `folder`.
  return SyncFolder(dir);
}

// Deletes the oldest versions below `written` until `keep` are left, including
// `written`.
absl::Status Prune(const std::string& dir, int64_t written, int keep) {
  if (keep <= 0) return absl::OkStatus();
  ELASTICDL_ASSIGN_OR_RETURN(const Listing listing, ListVersions(dir));
  std::vector<Version> older;
  for (const Version& version : listing.versions) {
    if (version.version < written) older.push_back(version);
  }
  const size_t stay = static_cast<size_t>(keep) - 1;
  for (size_t i = 0; i + stay < older.size(); ++i) {
    ELASTICDL_RETURN_IF_ERROR(internal::DeleteVersion(dir, older[i].path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> Save(const std::string& dir,
                                 const Snapshot& snapshot,
                                 const SaveOptions& options) {
  if (snapshot.version < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("save checkpoint: version ", snapshot.version));
  }
  ELASTICDL_RETURN_IF_ERROR(CheckTensors(snapshot.variables, "variable"));
  ELASTICDL_RETURN_IF_ERROR(CheckTensors(snapshot.slots, "slot"));
  ELASTICDL_RETURN_IF_ERROR(internal::CheckTables(snapshot.tables));
  ELASTICDL_RETURN_IF_ERROR(PrepareDirectory(dir));
  internal::RemoveAbandoned(dir, Clock::Real().WallNow());
  const std::string name = internal::VersionName(snapshot.version);
  const std::string path = JoinPath(dir, name);
  if (absl::Status status = WriteVersion(dir, name, options, snapshot);
      !status.ok()) {
    return Annotate(status, absl::StrCat("save checkpoint ", path));
  }
  if (absl::Status status = Prune(dir, snapshot.version, options.keep_max);
      !status.ok()) {
    LogWarning("checkpoint: delete old versions in ", dir, ": ",
               status.ToString());
  }
  return path;
}

absl::Status Fence(const std::string& dir, const Lineage& lineage) {
  if (!IsDirectory(dir)) return absl::OkStatus();
  return WriteFileAtomic(JoinPath(dir, internal::kFenceName),
                         internal::FormatFence(lineage));
}

}  // namespace elasticdl::checkpoint
