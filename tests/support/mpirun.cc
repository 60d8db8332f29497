#include "support/mpirun.h"

#include <cstdio>
#include <cstdlib>

namespace elasticdl::test {

int MpirunVersion(const std::string& text) {
  const std::string mark = "(Open MPI) ";
  const size_t at = text.find(mark);
  return at == std::string::npos ? 0
                                 : std::atoi(text.c_str() + at + mark.size());
}

int FindMpirunVersion() {
  FILE* const pipe = popen("mpirun --version 2> /dev/null", "r");
  if (pipe == nullptr) return 0;
  char line[256] = "";
  const bool read = fgets(line, sizeof(line), pipe) != nullptr;
  pclose(pipe);
  return read ? MpirunVersion(line) : 0;
}

std::vector<std::string> MpirunRecovery(int version) {
  if (version < 5) return {"--enable-recovery"};
  return {"--runtime-options", "recoverable"};
}

std::vector<std::string> MpirunPlacement(int version) {
  if (version < 5) return {"--oversubscribe", "--bind-to", "none"};
  return {"--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"};
}

}  // namespace elasticdl::test
