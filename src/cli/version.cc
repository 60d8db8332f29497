#include "version.h"

#include <cstdio>

#include "elasticdl/flags/flag_set.h"
#include "version_info.h"

namespace elasticdl::cli {

int RunVersion(const std::vector<std::string>& args) {
  flags::FlagSet set(
      "elasticdl version",
      "Shows the versions of elasticdl and of the libraries it was "
      "built with.");
  const int exit_code = set.ParseOrExitCode(args);
  if (exit_code >= 0) return exit_code;
  std::printf("elasticdl %s (%s, %s)\n", kVersion, kBuildType, kCompiler);
  for (const LibraryVersion& library : kLibraries) {
    const bool used = library.version[0] != '\0';
    std::printf("  %-14s %s\n", library.name,
                used ? library.version : "not in this build");
  }
  return 0;
}

}  // namespace elasticdl::cli
