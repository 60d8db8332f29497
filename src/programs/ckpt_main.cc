// elasticdl-ckpt: the commands of `elasticdl ckpt`, which starts it; nobody
// needs to type its name.
#include <string>
#include <vector>

#include "ckpt/ckpt.h"

int main(int argc, char** argv) {
  return elasticdl::cli::RunCkptCommands(
      std::vector<std::string>(argv + 1, argv + argc));
}
