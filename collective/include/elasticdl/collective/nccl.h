// NCCL for the worlds of this process (`--collective=nccl`).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace elasticdl::collective {

// Of one process. For BackendOptions::nccl.
class NcclRuntime;

struct NcclOptions {
  // libelasticdl_nccl.so.
  std::string plugin;
  // The CUDA device of this process.
  int device = 0;
  // ncclCommAbort may hang. After this time the process kills itself: nothing
  // else stops what is on the device.
  absl::Duration abort_patience = absl::Seconds(10);
};

// Loads NCCL. FAILED_PRECONDITION, with the reason and what to do, if there is
// no plugin, no NCCL, no driver or no such GPU.
absl::StatusOr<std::shared_ptr<NcclRuntime>> OpenNccl(
    const NcclOptions& options);

// "NCCL 2.28.9, GPU 0 of 4 (0000:01:00.0)".
std::string Describe(const NcclRuntime& runtime);
// How many worlds of this process have used NCCL.
int64_t NumNcclWorlds(const NcclRuntime& runtime);

}  // namespace elasticdl::collective
