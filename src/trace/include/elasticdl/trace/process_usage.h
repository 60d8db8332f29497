// Memory and processor time of this process.
#pragma once

#include <cstdint>

namespace elasticdl::trace {

struct ProcessUsage {
  // Resident; 0: not known.
  int64_t memory_bytes = 0;
  // Of all threads, since the process began.
  double cpu_seconds = 0;
};
ProcessUsage ReadProcessUsage();

}  // namespace elasticdl::trace
