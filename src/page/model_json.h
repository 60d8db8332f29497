// The line `model` of an event log, as the page gets it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace elasticdl::page {

// One JSON object with the fields that docs/api.md names. What is missing or
// of another type is left out; texts and lists are cut.
std::string ModelJson(const nlohmann::ordered_json& event);

}  // namespace elasticdl::page
