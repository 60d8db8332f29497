// sh, also as a fork server; with --read FILE it reads that file to its end
// instead.
#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "elasticdl/fork_server.h"

namespace {

int Main(const std::vector<std::string>& args) {
  if (args.size() == 2 && args[0] == "--read") {
    const int fd = open(args[1].c_str(), O_RDONLY | O_CLOEXEC);
    char byte = 0;
    while (read(fd, &byte, 1) > 0) {
    }
    return fd >= 0 ? 0 : 1;
  }
  std::vector<char*> argv = {const_cast<char*>("sh")};
  for (const std::string& arg : args) {
    argv.push_back(const_cast<char*>(arg.c_str()));
  }
  argv.push_back(nullptr);
  execve("/bin/sh", argv.data(), environ);
  return 126;
}

}  // namespace

int main(int argc, char** argv) {
  int fd = -1;
  if (argc > 1 && elasticdl::process::IsForkServer(argv[1], &fd)) {
    return elasticdl::process::ServeForks(fd, argv, Main);
  }
  return Main({argv + 1, argv + argc});
}
