#include "commands/local_job.h"

#include <cstdio>

namespace elasticdl::cli {
namespace {

int NotYet(const char* what) {
  std::fprintf(stderr, "elasticdl %s: not available in this build yet\n", what);
  return 1;
}

}  // namespace

int RunLocalJob(const std::string& command, const JobFlags& /*flags*/,
                const FlagSet& /*set*/) {
  return NotYet(command.c_str());
}
int RunList(const std::vector<std::string>& /*args*/) { return NotYet("list"); }
int RunTop(const std::vector<std::string>& /*args*/) { return NotYet("top"); }
int RunScale(const std::vector<std::string>& /*args*/) {
  return NotYet("scale");
}
int RunLogs(const std::vector<std::string>& /*args*/) { return NotYet("logs"); }
int RunStop(const std::vector<std::string>& /*args*/) { return NotYet("stop"); }

}  // namespace elasticdl::cli
