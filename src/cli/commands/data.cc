#include "commands/data.h"

#include <cstdio>

namespace elasticdl::cli {

int RunData(const std::vector<std::string>& /*args*/) {
  std::fprintf(stderr, "elasticdl data: not available in this build yet\n");
  return 1;
}

}  // namespace elasticdl::cli
