// Fields of JSON from elsewhere: empty if they are missing or have another
// type.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace elasticdl::docker {

inline std::string StringField(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) return "";
  return it->get<std::string>();
}

inline int64_t IntField(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return 0;
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number()) return 0;
  return it->get<int64_t>();
}

// An empty object if it is missing.
inline nlohmann::json ObjectField(const nlohmann::json& object,
                                  const char* key) {
  if (object.is_object()) {
    const auto it = object.find(key);
    if (it != object.end() && it->is_object()) return *it;
  }
  return nlohmann::json::object();
}

}  // namespace elasticdl::docker
