#include "layout.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/crc32.h"
#include "elasticdl/common/hash.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "nlohmann/json.hpp"

namespace elasticdl::checkpoint::internal {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;

// Digits only: no sign, no spaces, no leading zero.
std::optional<int64_t> ParseCount(absl::string_view text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 0 ||
      absl::StrCat(value) != text) {
    return std::nullopt;
  }
  return value;
}

std::string Hex(uint32_t value) { return absl::StrFormat("%08x", value); }

std::optional<uint32_t> ParseHex(absl::string_view text) {
  uint32_t value = 0;
  if (!absl::SimpleHexAtoi(text, &value) || Hex(value) != text) {
    return std::nullopt;
  }
  return value;
}

// Typed access that does not throw. Returns false if the field is missing or
// has another type.
bool Get(const Json& json, const char* key, std::string& value) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) return false;
  value = found->get_ref<const std::string&>();
  return true;
}
bool Get(const Json& json, const char* key, int64_t& value) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_integer()) return false;
  value = found->get<int64_t>();
  return true;
}

bool GetLineage(const Json& json, Lineage& lineage) {
  return Get(json, "run", lineage.run) &&
         Get(json, "lineage", lineage.generation);
}

// Names in a manifest are joined to its folder, so they must not lead out of
// it.
bool IsPlainFileName(absl::string_view name) {
  return !name.empty() && !absl::StrContains(name, '/') && name != "." &&
         name != "..";
}

bool ParseFiles(const Json& json, std::vector<ManifestFile>& files) {
  const auto found = json.find("files");
  if (found == json.end() || !found->is_array()) return false;
  for (const Json& entry : *found) {
    ManifestFile file;
    std::string crc;
    if (!entry.is_object() || !Get(entry, "name", file.name) ||
        !Get(entry, "bytes", file.bytes) || !Get(entry, "crc32c", crc)) {
      return false;
    }
    const std::optional<uint32_t> value = ParseHex(crc);
    if (!value.has_value() || file.bytes < 0 || !IsPlainFileName(file.name)) {
      return false;
    }
    file.crc32c = *value;
    files.push_back(std::move(file));
  }
  return true;
}

std::string Checksum(const Json& without_checksum) {
  return Hex(Crc32c(JsonText(without_checksum)));
}

}  // namespace

std::string VersionName(int64_t version) {
  return absl::StrCat("version-", version);
}

std::optional<int64_t> ParseVersionName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "version-")) return std::nullopt;
  return ParseCount(name);
}

std::string FormatShardName(absl::string_view kind, size_t index,
                            size_t count) {
  return absl::StrCat(kind, "-", index, "-of-", count, ".ckpt");
}

std::optional<ShardName> ParseShardName(absl::string_view name) {
  if (!absl::ConsumeSuffix(&name, ".ckpt")) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
  if (parts.size() != 4 || parts[2] != "of" ||
      (parts[0] != kVariables && parts[0] != kOptimizer &&
       parts[0] != kRanks)) {
    return std::nullopt;
  }
  const std::optional<int64_t> index = ParseCount(parts[1]);
  const std::optional<int64_t> count = ParseCount(parts[3]);
  if (!index.has_value() || !count.has_value() || *index >= *count) {
    return std::nullopt;
  }
  return ShardName{std::string(parts[0]), *index, *count};
}

std::string FormatManifest(const Manifest& manifest) {
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files) {
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"crc32c", Hex(file.crc32c)}});
  }
  Json json = {
      {"format", kFormat},
      {"version", manifest.version},
      {"optimizer", manifest.optimizer},
      {"optimizer_step", manifest.optimizer_step},
      {"signature", manifest.signature},
      {"created", absl::FormatTime(absl::RFC3339_sec, manifest.created,
                                   absl::UTCTimeZone())},
      {"files", std::move(files)},
  };
  if (!manifest.lineage.run.empty()) {
    json["run"] = manifest.lineage.run;
    json["lineage"] = manifest.lineage.generation;
  }
  json["checksum"] = Checksum(json);
  return JsonText(json, 2) + "\n";
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text,
                                       absl::string_view path) {
  const auto bad = [path](absl::string_view why) {
    return absl::DataLossError(absl::StrCat("read ", path, ": ", why));
  };
  Json json = ParseJson(text);
  if (!json.is_object()) return bad("not a JSON object");
  std::string checksum;
  if (!Get(json, "checksum", checksum)) return bad("has no checksum");
  json.erase("checksum");
  if (Checksum(json) != checksum) return bad("checksum differs");
  int64_t format = 0;
  if (!Get(json, "format", format)) return bad("has no format number");
  if (format != kFormat) {
    return bad(
        absl::StrCat("format ", format, " is not known (only ", kFormat, ")"));
  }
  Manifest manifest;
  std::string created;
  if (!Get(json, "version", manifest.version) || manifest.version < 0 ||
      !Get(json, "optimizer", manifest.optimizer) ||
      !Get(json, "optimizer_step", manifest.optimizer_step) ||
      !Get(json, "signature", manifest.signature) ||
      !Get(json, "created", created) || !ParseFiles(json, manifest.files)) {
    return bad("a field is missing or wrong");
  }
  if (json.contains("run") && !GetLineage(json, manifest.lineage)) {
    return bad("its lineage is wrong");
  }
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, created, &manifest.created,
                       &error)) {
    return bad(absl::StrCat("created: ", error));
  }
  return manifest;
}

std::string FormatFence(const Lineage& lineage) {
  return JsonText(
             Json({{"run", lineage.run}, {"lineage", lineage.generation}})) +
         "\n";
}

absl::StatusOr<Lineage> ParseFence(absl::string_view text,
                                   absl::string_view path) {
  const Json json = ParseJson(text);
  Lineage lineage;
  if (!json.is_object() || !GetLineage(json, lineage)) {
    return absl::DataLossError(absl::StrCat("read ", path, ": not a fence"));
  }
  return lineage;
}

std::string ModelSignature(absl::Span<const NamedTensor> variables,
                           absl::Span<const TableRows> tables) {
  std::vector<std::string> lines;
  lines.reserve(variables.size());
  for (const NamedTensor& tensor : variables) {
    lines.push_back(Describe(tensor));
  }
  std::set<std::string> table_lines;
  for (const TableRows& rows : tables) {
    table_lines.insert(absl::StrCat(rows.name, " table[", rows.dim, "]"));
  }
  lines.insert(lines.end(), table_lines.begin(), table_lines.end());
  std::sort(lines.begin(), lines.end());
  // It identifies a model; it does not protect against attacks.
  uint64_t hash = kFnv1aStart;
  for (const std::string& line : lines) hash = Fnv1a("\n", Fnv1a(line, hash));
  return absl::StrFormat("%016x", hash);
}

std::vector<size_t> CutIntoFiles(const std::vector<int64_t>& sizes,
                                 int64_t max_bytes) {
  std::vector<size_t> ends;
  int64_t used = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t begin = ends.empty() ? 0 : ends.back();
    if (i > begin && used + sizes[i] > max_bytes) {
      ends.push_back(i);
      used = 0;
    }
    used += sizes[i];
  }
  ends.push_back(sizes.size());
  return ends;
}

}  // namespace elasticdl::checkpoint::internal
