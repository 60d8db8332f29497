// Jobs on a cluster: the commands of the program elasticdl-cluster.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::cli {

// train, evaluate, predict with an image: writes the objects (--yaml) or
// submits them, then follows the master's log until the job ends, or returns at
// once (--detach). Returns the job's exit code; 1 if it could not be submitted.
int RunClusterTrain(const std::vector<std::string>& args);
int RunClusterEvaluate(const std::vector<std::string>& args);
int RunClusterPredict(const std::vector<std::string>& args);

// `elasticdl list|top|open|report|scale|kill|stop|logs` for jobs on a cluster.
int RunClusterList(const std::vector<std::string>& args);
int RunClusterTop(const std::vector<std::string>& args);
int RunClusterOpen(const std::vector<std::string>& args);
int RunClusterReport(const std::vector<std::string>& args);
int RunClusterScale(const std::vector<std::string>& args);
int RunClusterKill(const std::vector<std::string>& args);
int RunClusterStop(const std::vector<std::string>& args);
int RunClusterLogs(const std::vector<std::string>& args);

// elasticdl rbac: prints or applies what the master of a job may do.
int RunClusterRbac(const std::vector<std::string>& args);

// The part of elasticdl doctor: findings as JSON, one per line.
int RunClusterDoctor(const std::vector<std::string>& args);

}  // namespace elasticdl::cli
