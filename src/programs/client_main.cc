// elasticdl: the client.
#include <string>
#include <vector>

#include "command.h"

int main(int argc, char** argv) {
  return elasticdl::cli::Run(std::vector<std::string>(argv + 1, argv + argc));
}
