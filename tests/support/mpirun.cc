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

namespace {

// Of what the command prints.
std::string FirstLine(const char* command) {
  FILE* const pipe = popen(command, "r");
  if (pipe == nullptr) return "";
  char line[256] = "";
  const bool read = fgets(line, sizeof(line), pipe) != nullptr;
  pclose(pipe);
  return read ? line : "";
}

}  // namespace

int FindMpirunVersion() {
  return MpirunVersion(FirstLine("mpirun --version 2> /dev/null"));
}

bool MpiHasUcx() {
  static const bool has =
      !FirstLine("ompi_info --parsable 2> /dev/null | grep '^mca:pml:ucx:'")
           .empty();
  return has;
}

std::vector<std::string> MpirunUcx() {
  return {"--mca",
          "pml",
          "ucx",
          "--mca",
          "opal_common_ucx_tls",
          "any",
          "--mca",
          "opal_common_ucx_devices",
          "any",
          "-x",
          "UCX_TLS=^cma"};
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
