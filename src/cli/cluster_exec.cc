#include "cluster_exec.h"

#include "elasticdl/common/file.h"
#include "elasticdl/flags/environment.h"
#include "exec_beside.h"

namespace elasticdl::cli {

absl::Status ExecCluster(const std::string& command,
                         const std::vector<std::string>& args) {
  std::vector<std::string> all = {command};
  all.insert(all.end(), args.begin(), args.end());
  return ExecBeside("elasticdl-cluster", "which talks to clusters and Docker",
                    all);
}

bool ClusterIsConfigured() {
  return !flags::GetEnv("KUBECONFIG").empty() ||
         !flags::GetEnv("KUBERNETES_SERVICE_HOST").empty() ||
         FileExists(JoinPath(flags::HomeDir(), ".kube/config"));
}

}  // namespace elasticdl::cli
