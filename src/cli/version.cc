#include "version.h"

#include <cstdio>

#include "doctor/checks.h"
#include "doctor/device_checks.h"
#include "elasticdl/flags/flag_set.h"
#include "version_info.h"

namespace elasticdl::cli {

int RunVersion(const std::vector<std::string>& args) {
  flags::FlagSet set(
      "elasticdl version",
      "Shows the versions of elasticdl and of the libraries it was "
      "built with, and which GPUs its workers can use here.");
  const int exit_code = set.ParseOrExitCode(args);
  if (exit_code >= 0) return exit_code;
  std::printf("elasticdl %s (%s, %s)\n", kVersion, kBuildType, kCompiler);
  for (const LibraryVersion& library : kLibraries) {
    const bool used = library.version[0] != '\0';
    std::printf("  %-14s %s\n", library.name,
                used ? library.version : "not in this build");
  }
  std::printf("on this machine\n");
  for (const Finding& finding : CheckDevices(RealHost())) {
    std::printf("  %-15s %s\n", finding.name.c_str(), finding.detail.c_str());
  }
  return 0;
}

}  // namespace elasticdl::cli
