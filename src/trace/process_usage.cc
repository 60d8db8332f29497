#include "elasticdl/trace/process_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace elasticdl::trace {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

ProcessUsage ReadProcessUsage() {
  ProcessUsage usage;
  rusage self = {};
  if (getrusage(RUSAGE_SELF, &self) == 0) {
    usage.cpu_seconds = Seconds(self.ru_utime) + Seconds(self.ru_stime);
  }
  int64_t total = 0;
  int64_t resident = 0;
  std::ifstream statm("/proc/self/statm");
  if (statm >> total >> resident) {
    usage.memory_bytes = resident * sysconf(_SC_PAGESIZE);
  }
  return usage;
}

}  // namespace elasticdl::trace
