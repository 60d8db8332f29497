// Sums of arrays, the arithmetic of all reductions.
#pragma once

#include <cstddef>

#include "elasticdl/collective/communicator.h"

namespace elasticdl::collective {

// out[i] = in[0][i] + ... + in[n-1][i], added in this order, so that all
// members that add the same arrays get the same bits. bf16 and fp16 are added
// in float and rounded once, to even. `out` may be one of the inputs. `copy`
// gets the result too unless it is null. n >= 1.
void Sum(const void* const* in, int n, void* out, void* copy, size_t count,
         DataType type);

}  // namespace elasticdl::collective
