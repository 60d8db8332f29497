// YAML and JSON, from one to the other.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::flags {

// The one document in `text` (YAML 1.2, so JSON too). INVALID_ARGUMENT with
// line and column.
absl::StatusOr<nlohmann::json> JsonFromYaml(const std::string& text);

// A value as YAML that parsers of 1.1 (kubectl's) and 1.2 read alike: what
// could be taken for something else is quoted. Ends with a newline.
std::string YamlFromJson(const nlohmann::json& value);

// Several documents, each after a line "---".
std::string YamlDocuments(const std::vector<nlohmann::json>& values);

}  // namespace elasticdl::flags
