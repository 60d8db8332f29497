// What `elasticdl doctor` and `elasticdl version` report about GPUs.
#pragma once

#include <vector>

#include "doctor/checks.h"
#include "doctor/finding.h"

namespace elasticdl::cli {

// The driver, the GPUs, and what workers can do with them: libtorch and the
// plugin for NCCL. The worker's program is asked for the latter.
std::vector<Finding> CheckDevices(const DoctorHost& host);

}  // namespace elasticdl::cli
