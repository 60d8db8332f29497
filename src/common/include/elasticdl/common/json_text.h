// JSON to text and back. Compiled once here: the templates behind it take the
// compiler a second in every file that uses them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace elasticdl {

// Never throws: bytes that are not UTF-8 (names of files, messages of others)
// are replaced. One line; with `indent` >= 0, lines that are indented by so
// much at each level.
std::string JsonText(const nlohmann::json& json, int indent = -1);
std::string JsonText(const nlohmann::ordered_json& json, int indent = -1);

// null when there is no value, and for infinity and NaN, which JSON has not.
nlohmann::ordered_json JsonNumber(std::optional<double> value);

// Never throws: is_discarded() when the text is not JSON.
nlohmann::json ParseJson(absl::string_view text);
// Keeps the order of the fields.
nlohmann::ordered_json ParseOrderedJson(absl::string_view text);

}  // namespace elasticdl
