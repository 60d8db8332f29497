// The update formulas as one fused pass over memory, compiled for several
// instruction sets; the best one for the CPU is chosen at run time.
#pragma once

#include "elasticdl/optim.h"
#include "elasticdl/optim_formulas.h"

namespace elasticdl::optim::internal {

// The arrays of one call.
using Arrays = Update;

void ApplySgd(const SgdConstants& c, const Arrays& a);
void ApplyAdam(const AdamConstants& c, const Arrays& a);
void ApplyAdagrad(const AdagradConstants& c, const Arrays& a);
void ApplyRmsProp(const RmsPropConstants& c, const Arrays& a);
void ApplyAdadelta(const AdadeltaConstants& c, const Arrays& a);
void ApplyAdamax(const AdamaxConstants& c, const Arrays& a);
void ApplyNadam(const NadamConstants& c, const Arrays& a);
// ApplyFtrl is for a power of 0.5, a square root; the other one computes any
// power, element by element.
void ApplyFtrl(const FtrlConstants& c, const Arrays& a);
void ApplyFtrlAnyPower(const FtrlConstants& c, const Arrays& a);

}  // namespace elasticdl::optim::internal
