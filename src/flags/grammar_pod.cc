// Grammars of what a pod gets: resources and volumes.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/grammar.h"
#include "grammar_text.h"

namespace elasticdl::flags {
namespace {

// No leading zero: "0", "12", not "012".
bool IsPlainInteger(absl::string_view text) {
  return AllDigits(text) && (text.size() == 1 || text[0] != '0');
}

bool IsCpu(absl::string_view text) {
  if (absl::ConsumeSuffix(&text, "m")) {
    return IsPlainInteger(text) && text != "0";
  }
  const size_t dot = text.find('.');
  if (dot == absl::string_view::npos) {
    return IsPlainInteger(text) && text != "0";
  }
  const absl::string_view fraction = text.substr(dot + 1);
  double value = 0;
  return IsPlainInteger(text.substr(0, dot)) && AllDigits(fraction) &&
         absl::SimpleAtod(text, &value) && value > 0;
}

bool IsMemory(absl::string_view text) {
  size_t digits = 0;
  while (digits < text.size() &&
         absl::ascii_isdigit(static_cast<unsigned char>(text[digits]))) {
    ++digits;
  }
  static constexpr absl::string_view kUnits[] = {
      "E", "P", "T", "G", "M", "K", "Ei", "Pi", "Ti", "Gi", "Mi", "Ki"};
  const absl::string_view unit = text.substr(digits);
  return digits > 0 && text[0] != '0' &&
         std::find(std::begin(kUnits), std::end(kUnits), unit) !=
             std::end(kUnits);
}

// `example.com/gpu`, `nvidia.com/mig-1g.5gb`.
bool IsDeviceName(absl::string_view name) {
  const size_t slash = name.find('/');
  if (slash == absl::string_view::npos || slash == 0) return false;
  const absl::string_view vendor = name.substr(0, slash);
  const absl::string_view type = name.substr(slash + 1);
  if (type != "gpu" && (vendor != "nvidia.com" || !IsName(type))) return false;
  for (absl::string_view part : absl::StrSplit(vendor, '.')) {
    if (part.empty() || part.size() > 63) return false;
    for (char c : part) {
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-') {
        return false;
      }
    }
  }
  return true;
}

absl::Status CheckQuantity(absl::string_view name, absl::string_view value) {
  if (name == "cpu") {
    if (IsCpu(value)) return absl::OkStatus();
    return Bad("cpu=", value, ": expected a number such as 2, 0.5 or 500m");
  }
  if (name == "memory" || name == "ephemeral-storage") {
    if (IsMemory(value)) return absl::OkStatus();
    return Bad(name, "=", value,
               ": expected an integer with a unit of E, P, T, G, M, K, Ei, Pi, "
               "Ti, Gi, Mi, Ki, such as 4096Mi");
  }
  if (IsPlainInteger(value)) return absl::OkStatus();
  return Bad(name, "=", value, ": expected a whole number of devices");
}

absl::StatusOr<VolumeMount> ParseVolume(absl::string_view text) {
  VolumeMount volume;
  std::string ignored;
  const std::vector<std::pair<std::string, std::string*>> keys = {
      {"claim_name", &volume.claim_name},
      {"host_path", &volume.host_path},
      {"type", &volume.type},
      {"mount_path", &volume.mount_path},
      {"sub_path", &volume.sub_path},
      {"volume_name", &ignored}};
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const auto& key : keys) names.push_back(key.first);
  std::vector<std::string> seen;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    ELASTICDL_ASSIGN_OR_RETURN(const auto pair, SplitPair(part));
    const auto it = std::find_if(
        keys.begin(), keys.end(),
        [&](const auto& candidate) { return candidate.first == pair.first; });
    if (it == keys.end()) {
      names.pop_back();  // volume_name is not advertised.
      return Bad("'", pair.first, "' is not a key of a volume (",
                 absl::StrJoin(names, ", "), ")",
                 DidYouMean(pair.first, names));
    }
    if (std::find(seen.begin(), seen.end(), pair.first) != seen.end()) {
      return Bad("'", Trim(text), "' has ", pair.first, " twice");
    }
    if (pair.second.empty()) {
      return Bad("'", Trim(text), "' has no value for ", pair.first);
    }
    seen.push_back(pair.first);
    *it->second = pair.second;
  }
  return volume;
}

absl::Status CheckVolume(const VolumeMount& volume, absl::string_view text) {
  if (volume.claim_name.empty() == volume.host_path.empty()) {
    return Bad("'", Trim(text), "' needs either claim_name or host_path");
  }
  if (volume.mount_path.empty()) {
    return Bad("'", Trim(text), "' needs mount_path");
  }
  if (!absl::StartsWith(volume.mount_path, "/")) {
    return Bad("mount_path=", volume.mount_path, " must begin with /");
  }
  if (!volume.host_path.empty() && !absl::StartsWith(volume.host_path, "/")) {
    return Bad("host_path=", volume.host_path, " must begin with /");
  }
  if (!volume.type.empty() && volume.host_path.empty()) {
    return Bad("'", Trim(text), "': type goes with host_path only");
  }
  const std::vector<std::string> types = {
      "DirectoryOrCreate", "Directory",  "FileOrCreate", "File", "Socket",
      "CharDevice",        "BlockDevice"};
  if (!volume.type.empty() &&
      std::find(types.begin(), types.end(), volume.type) == types.end()) {
    return Bad("type=", volume.type, " is not one of ",
               absl::StrJoin(types, ", "), DidYouMean(volume.type, types));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Resources> ParseResources(absl::string_view text) {
  Resources resources;
  if (Trim(text).empty()) return resources;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    absl::StatusOr<std::pair<std::string, std::string>> pair = SplitPair(part);
    if (!pair.ok()) {
      return Bad("'", Trim(part),
                 "' is not of the form name=quantity, as in "
                 "cpu=1,memory=4096Mi");
    }
    std::string name = pair->first;
    if (name == "gpu") name = "nvidia.com/gpu";
    if (name == "disk") name = "ephemeral-storage";
    const std::vector<std::string> known = {"cpu", "memory", "disk", "gpu",
                                            "ephemeral-storage"};
    if (std::find(known.begin(), known.end(), name) == known.end() &&
        !IsDeviceName(name)) {
      return Bad("'", pair->first, "' is not a resource (",
                 absl::StrJoin(known, ", "), ", <vendor>/gpu)",
                 DidYouMean(pair->first, known));
    }
    ELASTICDL_RETURN_IF_ERROR(CheckQuantity(name, pair->second));
    if (!resources.emplace(name, pair->second).second) {
      return Bad("'", pair->first, "' is given twice");
    }
  }
  return resources;
}

double QuantityValue(absl::string_view quantity) {
  static constexpr struct {
    absl::string_view unit;
    double factor;
  } kUnits[] = {{"m", 1e-3},    {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30},
                {"Ti", 0x1p40}, {"Pi", 0x1p50}, {"Ei", 0x1p60}, {"K", 1e3},
                {"M", 1e6},     {"G", 1e9},     {"T", 1e12},    {"P", 1e15},
                {"E", 1e18}};
  double factor = 1;
  for (const auto& one : kUnits) {
    if (!absl::ConsumeSuffix(&quantity, one.unit)) continue;
    factor = one.factor;
    break;
  }
  double number = 0;
  return absl::SimpleAtod(quantity, &number) ? number * factor : 0;
}

absl::StatusOr<int64_t> ParseMemorySize(absl::string_view text) {
  if (text.empty() || text == "0") return 0;
  ELASTICDL_RETURN_IF_ERROR(CheckQuantity("memory", text));
  const double bytes = QuantityValue(text);
  // Above, a double is no int64.
  if (bytes >= 0x1p62) return Bad("memory=", text, " is more than there is");
  return static_cast<int64_t>(bytes);
}

std::string FormatResources(const Resources& resources) {
  return absl::StrJoin(resources, ",", absl::PairFormatter("="));
}

absl::StatusOr<std::vector<VolumeMount>> ParseVolumes(absl::string_view text) {
  std::vector<VolumeMount> volumes;
  for (absl::string_view part : absl::StrSplit(text, ';')) {
    if (Trim(part).empty()) continue;
    ELASTICDL_ASSIGN_OR_RETURN(VolumeMount volume, ParseVolume(part));
    ELASTICDL_RETURN_IF_ERROR(CheckVolume(volume, part));
    for (const VolumeMount& other : volumes) {
      if (other.mount_path == volume.mount_path) {
        return Bad("mount_path=", volume.mount_path, " is used twice");
      }
    }
    volumes.push_back(std::move(volume));
  }
  return volumes;
}

}  // namespace elasticdl::flags
