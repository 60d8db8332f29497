#include "cluster_exec.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/environment.h"

namespace elasticdl::cli {

absl::Status ExecCluster(const std::string& command,
                         const std::vector<std::string>& args) {
  const std::string program = flags::ProgramBeside("elasticdl-cluster");
  std::vector<std::string> all = {program, command};
  all.insert(all.end(), args.begin(), args.end());
  std::vector<char*> argv;
  argv.reserve(all.size() + 1);
  for (std::string& arg : all) argv.push_back(arg.data());
  argv.push_back(nullptr);
  std::fflush(stdout);
  std::fflush(stderr);
  execv(program.c_str(), argv.data());
  return ErrnoToStatus(errno,
                       absl::StrCat("cannot start ", program,
                                    ", which talks to clusters and Docker"));
}

bool ClusterIsConfigured() {
  return !flags::GetEnv("KUBECONFIG").empty() ||
         !flags::GetEnv("KUBERNETES_SERVICE_HOST").empty() ||
         FileExists(JoinPath(flags::HomeDir(), ".kube/config"));
}

}  // namespace elasticdl::cli
