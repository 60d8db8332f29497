#include "exec_beside.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/environment.h"

namespace elasticdl::cli {

absl::Status ExecBeside(const std::string& program, const std::string& purpose,
                        const std::vector<std::string>& args) {
  std::vector<std::string> all = {flags::ProgramBeside(program)};
  all.insert(all.end(), args.begin(), args.end());
  std::vector<char*> argv;
  argv.reserve(all.size() + 1);
  for (std::string& arg : all) argv.push_back(arg.data());
  argv.push_back(nullptr);
  std::fflush(stdout);
  std::fflush(stderr);
  execv(argv[0], argv.data());
  return ErrnoToStatus(errno,
                       absl::StrCat("cannot start ", all[0], ", ", purpose));
}

}  // namespace elasticdl::cli
