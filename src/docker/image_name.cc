#include "elasticdl/docker/image_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace elasticdl::docker {
namespace {

constexpr char kDockerHub[] = "docker.io";
constexpr size_t kMaxTag = 128;

absl::Status Bad(const std::string& text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("image '", text, "': ", why));
}

bool IsRegistry(absl::string_view part) {
  return absl::StrContains(part, '.') || absl::StrContains(part, ':') ||
         part == "localhost";
}

bool IsPathPart(absl::string_view part) {
  if (part.empty()) return false;
  const auto plain = [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c);
  };
  return plain(part.front()) && plain(part.back()) &&
         std::all_of(part.begin(), part.end(), [&](char c) {
           return plain(c) || c == '.' || c == '_' || c == '-';
         });
}

bool IsTag(absl::string_view tag) {
  return !tag.empty() && tag.size() <= kMaxTag && tag[0] != '.' &&
         tag[0] != '-' && std::all_of(tag.begin(), tag.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

}  // namespace

absl::StatusOr<ImageName> ParseImageName(const std::string& text) {
  ImageName name;
  std::string rest = text;
  if (const size_t at = rest.find('@'); at != std::string::npos) {
    name.digest = rest.substr(at + 1);
    rest.resize(at);
  }
  const size_t slash = rest.rfind('/');
  const size_t colon = rest.rfind(':');
  if (colon != std::string::npos &&
      (slash == std::string::npos || colon > slash)) {
    name.tag = rest.substr(colon + 1);
    rest.resize(colon);
    if (!IsTag(name.tag)) return Bad(text, "the part after ':' is not a tag");
  } else {
    name.tag = "latest";
  }
  name.repository = rest;
  name.registry = kDockerHub;
  std::vector<std::string> parts = absl::StrSplit(rest, '/');
  if (parts.size() > 1 && IsRegistry(parts[0])) {
    name.registry = parts[0];
    parts.erase(parts.begin());
  }
  for (const std::string& part : parts) {
    if (!IsPathPart(part)) {
      return Bad(text, absl::StrCat("'", part,
                                    "' may hold lower-case letters, digits, "
                                    "'.', '_' and '-' only"));
    }
  }
  return name;
}

}  // namespace elasticdl::docker
