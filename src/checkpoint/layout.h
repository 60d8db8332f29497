// Names of files and folders of a checkpoint, and its manifest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "elasticdl/checkpoint/snapshot.h"

namespace elasticdl::checkpoint::internal {

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr char kLedgerName[] = "ledger.pb";
// Contains the Lineage of the last Fence.
inline constexpr char kFenceName[] = "fence.json";
inline constexpr char kVariables[] = "variables";
inline constexpr char kOptimizer[] = "optimizer";
// Newer than the others: older programs ignore files of kinds that they do not
// know.
inline constexpr char kRanks[] = "ranks";
// Folders that are being written or deleted. Readers ignore them.
inline constexpr char kTemporaryPrefix[] = ".tmp-";

// "version-120" and back.
std::string VersionName(int64_t version);
std::optional<int64_t> ParseVersionName(absl::string_view name);

// "variables-0-of-2.ckpt" and back.
struct ShardName {
  std::string kind;
  int64_t index = 0;
  int64_t count = 0;
};
std::string FormatShardName(absl::string_view kind, size_t index, size_t count);
std::optional<ShardName> ParseShardName(absl::string_view name);

struct ManifestFile {
  std::string name;
  int64_t bytes = 0;
  uint32_t crc32c = 0;
};

struct Manifest {
  int64_t version = 0;
  // Absent in files written by older versions of this program.
  Lineage lineage;
  std::string optimizer;
  int64_t optimizer_step = 0;
  std::string signature;
  absl::Time created;
  std::vector<ManifestFile> files;
};

std::string FormatManifest(const Manifest& manifest);
// DATA_LOSS names `path` and the problem. A manifest contains its own checksum.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text,
                                       absl::string_view path);

std::string FormatFence(const Lineage& lineage);
absl::StatusOr<Lineage> ParseFence(absl::string_view text,
                                   absl::string_view path);

// Assigns consecutive items to files of up to `max_bytes` each, if possible:
// the index after the last item of each file.
std::vector<size_t> CutIntoFiles(const std::vector<int64_t>& sizes,
                                 int64_t max_bytes);

// Equal for models with the same names, types and shapes, and the same tables,
// however many rows they have.
std::string ModelSignature(absl::Span<const NamedTensor> variables,
                           absl::Span<const TableRows> tables = {});

}  // namespace elasticdl::checkpoint::internal
