#include "elasticdl/flags/grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/suggest.h"
#include "flag_value.h"
#include "grammar_text.h"

namespace elasticdl::flags {
namespace {

bool IsNameChar(char c, bool first) {
  return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_' ||
         c == '.' || c == '-' ||
         (!first && absl::ascii_isdigit(static_cast<unsigned char>(c)));
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
      // One too many must not hide the separators that follow.
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

}  // namespace

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

bool IsName(absl::string_view text) {
  if (text.empty()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!IsNameChar(text[i], i == 0)) return false;
  }
  return true;
}

bool AllDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

absl::StatusOr<KeyValues> ParseEnvs(absl::string_view text) {
  KeyValues envs;
  if (Trim(text).empty()) return envs;
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == ',') {
      parts.back() += text[++i];
    } else if (text[i] == ',' && BeginsPair(text.substr(i + 1))) {
      // Any other comma is part of the value: NO_PROXY=a,b.
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
  const auto root = ParseJson(text);
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
