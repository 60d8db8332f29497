// What the model of a job consists of: from a worker's message to the event
// log and to people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "elasticdl/v1/master.pb.h"

namespace elasticdl::master {

// The fields of the line `model` of an event log (docs/formats.md). At most
// page::History::kMaxTensors tensors, whatever the worker sent.
nlohmann::ordered_json ModelToJson(const v1::ModelSummary& model);

// The same as a table, for --model_summary. One line of text each.
std::vector<std::string> ModelToLines(const v1::ModelSummary& model);

}  // namespace elasticdl::master
