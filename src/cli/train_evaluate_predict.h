// elasticdl train, evaluate, predict: parse the flags of a job and start it on
// this machine, on a cluster or under Slurm.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::cli {

int RunTrain(const std::vector<std::string>& args);
int RunEvaluate(const std::vector<std::string>& args);
int RunPredict(const std::vector<std::string>& args);

}  // namespace elasticdl::cli
