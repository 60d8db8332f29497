// What a model consists of, as a message for people.
#pragma once

#include <cstddef>
#include <string>

#include "elasticdl/model/loader.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::worker {

// More tensors than this are only counted, and longer names are cut.
inline constexpr size_t kMaxSummaryTensors = 500;
inline constexpr size_t kMaxSummaryText = 200;

// Thread-compatible. `optimizer` as text; empty: there is none.
v1::ModelSummary SummarizeModel(const model::Network& network,
                                const std::string& optimizer);

}  // namespace elasticdl::worker
