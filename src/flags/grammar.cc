#include "elasticdl/flags/grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/suggest.h"
#include "flag_value.h"

namespace elasticdl::flags {
namespace {

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

absl::string_view Trim(absl::string_view text) {
  return absl::StripAsciiWhitespace(text);
}

std::string DidYouMean(absl::string_view word,
                       const std::vector<std::string>& names) {
  const std::string nearest = Nearest(word, names);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

// Splits `key=value` at the first '='; both trimmed, the key not empty.
absl::StatusOr<std::pair<std::string, std::string>> SplitPair(
    absl::string_view text) {
  const size_t equals = text.find('=');
  const absl::string_view key = Trim(text.substr(0, equals));
  if (equals == absl::string_view::npos || key.empty()) {
    return Bad("'", Trim(text), "' is not of the form key=value");
  }
  return std::make_pair(std::string(key),
                        std::string(Trim(text.substr(equals + 1))));
}

bool IsNameChar(char c, bool first) {
  return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_' ||
         c == '.' || c == '-' ||
         (!first && absl::ascii_isdigit(static_cast<unsigned char>(c)));
}

bool IsName(absl::string_view text) {
  if (text.empty()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!IsNameChar(text[i], i == 0)) return false;
  }
  return true;
}

// Does `NAME=` (spaces before it allowed) begin here?
bool BeginsPair(absl::string_view text) {
  const size_t equals = text.find('=');
  return equals != absl::string_view::npos &&
         IsName(Trim(text.substr(0, equals)));
}

// Positions of `separator` outside quotes and brackets.
std::vector<size_t> Separators(absl::string_view text, char separator) {
  std::vector<size_t> found;
  char quote = 0;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
    } else if (c == ')' || c == ']' || c == '}') {
      depth = std::max(depth - 1, 0);
    } else if (c == separator && depth == 0) {
      found.push_back(i);
    }
  }
  return found;
}

std::vector<std::string> SplitAt(absl::string_view text,
                                 const std::vector<size_t>& positions) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t position : positions) {
    parts.emplace_back(text.substr(begin, position - begin));
    begin = position + 1;
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::string Unquote(const std::string& text) {
  if (text.size() >= 2 && (text[0] == '"' || text[0] == '\'') &&
      text.back() == text[0]) {
    return text.substr(1, text.size() - 2);
  }
  return text;
}

bool AllDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

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

absl::StatusOr<KeyValues> ParseEnvs(absl::string_view text) {
  KeyValues envs;
  if (Trim(text).empty()) return envs;
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == ',') {
      parts.back() += text[++i];
    } else if (text[i] == ',' && BeginsPair(text.substr(i + 1))) {
      parts.emplace_back();
    } else {
      parts.back() += text[i];
    }
  }
  for (const std::string& part : parts) {
    const size_t equals = part.find('=');
    const std::string name(Trim(absl::string_view(part).substr(0, equals)));
    if (equals == std::string::npos || !IsName(name)) {
      return Bad("'", part, "' is not of the form NAME=value");
    }
    for (const auto& other : envs) {
      if (other.first == name) return Bad("'", name, "' is given twice");
    }
    envs.emplace_back(name, part.substr(equals + 1));
  }
  return envs;
}

std::string WorkerPriority::ClassOf(int64_t index, int64_t num_workers) const {
  const auto high =
      static_cast<int64_t>(static_cast<double>(num_workers) * high_fraction);
  return index < high ? "high" : base;
}

absl::StatusOr<WorkerPriority> ParseWorkerPriority(absl::string_view text) {
  WorkerPriority priority;
  absl::string_view fraction = Trim(text);
  const bool old_form = absl::ConsumePrefix(&fraction, "high=");
  double value = 0;
  const bool is_number = absl::SimpleAtod(fraction, &value);
  if (old_form || is_number) {
    if (!is_number || !(value >= 0 && value <= 1)) {
      return Bad("'", text, "': the share of high workers must be a number ",
                 "between 0 and 1, as in 0.5");
    }
    priority.base = "low";
    priority.high_fraction = value;
    return priority;
  }
  if (absl::Status status = CheckKubeName(fraction, 253, true); !status.ok()) {
    return Bad("'", text,
               "' is neither high, low, a fraction such as 0.5, nor "
               "the name of a PriorityClass");
  }
  priority.base = std::string(fraction);
  return priority;
}

absl::StatusOr<KeyValues> ParseKeyValues(absl::string_view text,
                                         bool allow_commas) {
  KeyValues values;
  std::vector<std::string> parts = SplitAt(text, Separators(text, ';'));
  if (allow_commas && parts.size() == 1) {
    std::vector<size_t> commas;
    for (size_t comma : Separators(text, ',')) {
      if (BeginsPair(text.substr(comma + 1))) commas.push_back(comma);
    }
    parts = SplitAt(text, commas);
  }
  for (const std::string& part : parts) {
    if (Trim(part).empty()) continue;
    ELASTICDL_ASSIGN_OR_RETURN(auto pair, SplitPair(part));
    if (!IsName(pair.first)) {
      return Bad("'", pair.first, "' is not a name; expected key=value;…");
    }
    for (const auto& other : values) {
      if (other.first == pair.first) {
        return Bad("'", pair.first, "' is given twice");
      }
    }
    pair.second = Unquote(pair.second);
    values.push_back(std::move(pair));
  }
  return values;
}

absl::StatusOr<AuxParams> ParseAuxParams(absl::string_view text) {
  AuxParams params;
  ELASTICDL_ASSIGN_OR_RETURN(const KeyValues values, ParseKeyValues(text));
  for (const auto& [key, value] : values) {
    if (key != "disable_relaunch") {
      return Bad("'", key, "' is not known; only disable_relaunch is",
                 DidYouMean(key, {"disable_relaunch"}));
    }
    if (!ParseBool(value, params.disable_relaunch)) {
      return Bad("disable_relaunch=", value, ": expected true or false");
    }
  }
  return params;
}

absl::StatusOr<HostPort> ParseAddress(absl::string_view text) {
  const absl::string_view address = Trim(text);
  HostPort result;
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) {
    return Bad("'", address, "' is not of the form host:port");
  }
  absl::string_view host = address.substr(0, colon);
  const absl::string_view port = address.substr(colon + 1);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (absl::StrContains(host, ':')) {
    return Bad("'", address, "': write an IPv6 address as [address]:port");
  }
  if (host.empty() || host.find_first_of(" \t/,[]") != host.npos) {
    return Bad("'", address, "' is not of the form host:port");
  }
  if (!AllDigits(port) || !absl::SimpleAtoi(port, &result.port) ||
      result.port < 1 || result.port > 65535) {
    return Bad("'", address, "': the port must be between 1 and 65535");
  }
  result.host = std::string(host);
  return result;
}

absl::StatusOr<std::vector<HostPort>> ParseAddresses(absl::string_view text) {
  std::vector<HostPort> addresses;
  if (Trim(text).empty()) return addresses;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    ELASTICDL_ASSIGN_OR_RETURN(HostPort address, ParseAddress(part));
    addresses.push_back(std::move(address));
  }
  return addresses;
}

absl::Status CheckKubeName(absl::string_view text, size_t max_size, bool dots) {
  if (text.empty()) return absl::OkStatus();
  const auto plain = [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c));
  };
  bool good =
      text.size() <= max_size && plain(text.front()) && plain(text.back());
  for (char c : text) {
    good = good && (plain(c) || c == '-' || (dots && c == '.'));
  }
  if (good) return absl::OkStatus();
  return Bad("'", text, "' is no Kubernetes name: at most ", max_size,
             " small letters, digits and '-'", dots ? " and '.'" : "",
             ", a letter or digit first and last");
}

absl::Status CheckImageName(const std::string& text) {
  for (char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        !absl::StrContains("._-/:@", c)) {
      return Bad("'", text, "' is not the name of an image, such as ",
                 "registry.example.com/me/zoo:1.0");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckClusterSpecJson(const std::string& text) {
  if (Trim(text).empty()) return absl::OkStatus();
  const auto root = nlohmann::json::parse(text, nullptr, false);
  if (!root.is_object()) return Bad("'", text, "' is not a JSON object");
  const std::vector<std::string> keys = {"pod_spec", "master_pod_spec",
                                         "worker_pod_spec", "ps_pod_spec",
                                         "service_spec"};
  for (const auto& [key, value] : root.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      return Bad("'", key, "' is not one of ", absl::StrJoin(keys, ", "),
                 DidYouMean(key, keys));
    }
    if (!value.is_object()) return Bad("'", key, "' must hold a JSON object");
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::flags
