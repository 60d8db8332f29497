// Holds the place of the local jobs until they are there.
#include "commands/local_job.h"

#include <cstdio>

namespace elasticdl::cli {
namespace {

int NotYet(const std::string& name, const std::vector<std::string>& args) {
  FlagSet set("elasticdl " + name, "Not available in this build yet.");
  const int exit_code = set.ParseOrExitCode(args);
  if (exit_code >= 0) return exit_code;
  std::fprintf(stderr, "elasticdl %s: not available in this build yet\n",
               name.c_str());
  return 1;
}

}  // namespace

int RunLocalJob(const std::string& command, const JobFlags& /*flags*/,
                const FlagSet& /*set*/) {
  return NotYet(command, {});
}

int RunList(const std::vector<std::string>& args) {
  return NotYet("list", args);
}
int RunTop(const std::vector<std::string>& args) { return NotYet("top", args); }
int RunScale(const std::vector<std::string>& args) {
  return NotYet("scale", args);
}
int RunLogs(const std::vector<std::string>& args) {
  return NotYet("logs", args);
}
int RunStop(const std::vector<std::string>& args) {
  return NotYet("stop", args);
}

}  // namespace elasticdl::cli
