// --tensorboard_histograms: how the values of tensors are distributed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "elasticdl/v1/master.pb.h"
#include "replica.h"

namespace elasticdl::worker {

// TensorBoard draws 30; twice as many leave it something to choose from.
inline constexpr size_t kHistogramBins = 60;
// Parameters beyond the first so many get none: a message has about a
// kilobyte for each, twice.
inline constexpr size_t kMaxHistograms = 256;

// Equal bins from the smallest to the largest value; a single one if all are
// equal. Values that are not finite are left out. Pure.
v1::Histogram MakeHistogram(const std::string& name,
                            absl::Span<const float> values);

// Of the weights and gradients that the replica has now. On a device they are
// copied to the host first.
v1::Histograms MakeHistograms(Replica& replica);

}  // namespace elasticdl::worker
