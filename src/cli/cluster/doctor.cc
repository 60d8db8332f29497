// The part of `elasticdl doctor` that talks to the cluster and to Docker.
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/check.h"
#include "cluster/cluster_commands.h"
#include "cluster/connection.h"
#include "doctor/finding.h"
#include "elasticdl/docker/engine.h"
#include "zoo/docker_command.h"

namespace elasticdl::cli {
namespace {

using State = Finding::State;

std::vector<Finding> CheckCluster() {
  const auto cluster = ConnectCluster("", false);
  if (!cluster.ok()) {
    return {{State::kProblem, "cluster",
             std::string(cluster.status().message()),
             "check the file that KUBECONFIG names"}};
  }
  kube::Client& client = *cluster->client;
  const absl::Status there = CheckNamespace(client);
  if (!there.ok()) {
    return {{State::kProblem, "cluster",
             std::string(ExplainClusterError(there, *cluster).message()),
             absl::StrCat("is ", cluster->server, " (", cluster->origin,
                          ") the right cluster, and does it run?")}};
  }
  std::vector<Finding> findings = {
      {State::kOk, "cluster",
       absl::StrCat(cluster->server, ", namespace ", client.namespace_name()),
       ""}};
  const absl::Status rights = CheckOwnRights(client);
  findings.push_back(
      rights.ok()
          ? Finding{State::kOk, "rights", "jobs can be started and watched", ""}
          : Finding{State::kProblem, "rights", std::string(rights.message()),
                    "`elasticdl rbac --help` shows how to grant them"});
  return findings;
}

Finding CheckDocker() {
  const auto engine = docker::Engine::Connect(EngineOptionsFromEnvironment());
  if (engine.ok()) {
    return {State::kOk, "Docker", "an engine answers: images can be built", ""};
  }
  return {
      State::kNote, "Docker", std::string(engine.status().message()),
      "only `elasticdl zoo build` and `zoo push`, and jobs that build their "
      "own image, need one"};
}

}  // namespace

int RunClusterDoctor(const std::vector<std::string>&) {
  std::vector<Finding> findings = CheckCluster();
  findings.push_back(CheckDocker());
  std::fputs(FindingsToJson(findings).c_str(), stdout);
  return 0;
}

}  // namespace elasticdl::cli
