// A result as JSON, for the file of results and for results.json.
#pragma once

#include <nlohmann/json.hpp>

#include "elasticdl/experiment/results.h"

namespace elasticdl::experiment {

nlohmann::ordered_json ResultJson(const RunResult& result);

}  // namespace elasticdl::experiment
