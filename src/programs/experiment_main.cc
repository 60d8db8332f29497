// elasticdl-experiment: the commands of `elasticdl experiment`, which starts
// it; nobody needs to type its name.
#include <string>
#include <vector>

#include "experiment/experiment.h"

int main(int argc, char** argv) {
  return elasticdl::cli::RunExperimentCommands(
      std::vector<std::string>(argv + 1, argv + argc));
}
