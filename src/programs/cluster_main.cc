// elasticdl-cluster: the commands of `elasticdl` that talk to Kubernetes and to
// the Docker engine.
// `elasticdl` starts it; nobody needs to type its name.

#include <string>
#include <vector>

#include "cluster/cluster_commands.h"
#include "command.h"
#include "zoo/zoo.h"

namespace elasticdl::cli {
namespace {

int Main(const std::vector<std::string>& args) {
  const std::vector<Command> commands = {
      {"train", "Train a model on a cluster.", RunClusterTrain},
      {"evaluate", "Evaluate a checkpoint on a cluster.", RunClusterEvaluate},
      {"predict", "Predict with a checkpoint on a cluster.", RunClusterPredict},
      {"list", "List the jobs on a cluster.", RunClusterList},
      {"top", "Show what a job is doing.", RunClusterTop},
      {"open", "Open the page of a job in a browser.", RunClusterOpen},
      {"report", "Save the page of a job as one file.", RunClusterReport},
      {"scale", "Change the number of a job's workers.", RunClusterScale},
      {"kill", "Kill workers of a job.", RunClusterKill},
      {"logs", "Show the logs of a job's pods.", RunClusterLogs},
      {"stop", "Stop a job.", RunClusterStop},
      {"rbac", "Grant a cluster's jobs the rights that they need.",
       RunClusterRbac},
      {"doctor", "Check the cluster, rights and Docker.", RunClusterDoctor},
      {"zoo-build", "Build the image of a model zoo.", RunZooBuild},
      {"zoo-push", "Push an image.", RunZooPush},
  };
  return Dispatch("elasticdl-cluster",
                  "What `elasticdl` does on clusters; type that instead.",
                  commands, args);
}

}  // namespace
}  // namespace elasticdl::cli

int main(int argc, char** argv) {
  return elasticdl::cli::Main({argv + 1, argv + argc});
}
