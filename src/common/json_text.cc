#include "elasticdl/common/json_text.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace elasticdl {
namespace {

template <class Json>
std::string Text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

template <class Json>
Json Parse(absl::string_view text) {
  return Json::parse(text.begin(), text.end(), nullptr,
                     /*allow_exceptions=*/false);
}

}  // namespace

std::string JsonText(const nlohmann::json& json, int indent) {
  return Text(json, indent);
}
std::string JsonText(const nlohmann::ordered_json& json, int indent) {
  return Text(json, indent);
}

nlohmann::ordered_json JsonNumber(std::optional<double> value) {
  if (!value.has_value() || !std::isfinite(*value)) return nullptr;
  return *value;
}

nlohmann::json ParseJson(absl::string_view text) {
  return Parse<nlohmann::json>(text);
}
nlohmann::ordered_json ParseOrderedJson(absl::string_view text) {
  return Parse<nlohmann::ordered_json>(text);
}

}  // namespace elasticdl
