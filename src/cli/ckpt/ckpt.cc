// Dispatch of `elasticdl ckpt`.
#include "ckpt/ckpt.h"

#include <cstdio>

#include "command.h"

namespace elasticdl::cli {

int RunCkptCommands(const std::vector<std::string>& args) {
  const std::vector<Command> commands = {
      {"info", "Show what a checkpoint holds.", RunCkptInfo},
      {"diff", "Compare two checkpoints.", RunCkptDiff},
  };
  return Dispatch("elasticdl ckpt", "Show or compare checkpoints.", commands,
                  args);
}

int CkptFailed(const absl::Status& status) {
  std::fprintf(stderr, "elasticdl ckpt: %s\n",
               std::string(status.message()).c_str());
  return 2;
}

}  // namespace elasticdl::cli
