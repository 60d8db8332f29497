// The parts of `elasticdl doctor` that talk to the cluster, and to Docker and
// through it to registries.
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

// `elasticdl doctor` waits for 20 seconds.
constexpr absl::Duration kLoginTimeout = absl::Seconds(5);
constexpr size_t kMostRegistries = 3;

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

// The engine asks the registry, as it does for `zoo push`.
Finding CheckRegistry(docker::Engine& engine, const std::string& registry) {
  const absl::Status login = engine.CheckLogin(registry, kLoginTimeout);
  const std::string why(login.message());
  if (login.ok()) {
    return {State::kOk, "registry",
            absl::StrCat(registry, " accepts your credentials"), ""};
  }
  if (absl::IsPermissionDenied(login)) {
    return {State::kProblem, "registry", why,
            absl::StrCat("`docker login ", registry, "`")};
  }
  if (absl::IsNotFound(login)) {
    return {State::kNote, "registry", why,
            absl::StrCat("`zoo push` to it works only if it lets everybody "
                         "push; else `docker login ",
                         registry, "`")};
  }
  return {State::kProblem, "registry", why,
          "does it run, and does the Docker engine reach it?"};
}

std::vector<Finding> CheckImages() {
  const auto engine = docker::Engine::Connect(EngineOptionsFromEnvironment());
  if (!engine.ok()) {
    return {{State::kNote, "Docker", std::string(engine.status().message()),
             "only `elasticdl zoo build` and `zoo push`, and jobs that build "
             "their own image, need one"}};
  }
  std::vector<Finding> findings = {
      {State::kOk, "Docker", "an engine answers: images can be built", ""}};
  const std::vector<std::string> registries = (*engine)->Registries();
  if (registries.empty()) {
    findings.push_back(
        {State::kNote, "registry", "no credentials for any",
         "`zoo push` to one that asks for them needs `docker login`"});
  }
  for (size_t i = 0; i < registries.size() && i < kMostRegistries; ++i) {
    findings.push_back(CheckRegistry(**engine, registries[i]));
  }
  return findings;
}

}  // namespace

int RunClusterDoctor(const std::vector<std::string>& args) {
  const bool all = args.empty();
  std::vector<Finding> findings;
  if (all || args[0] == "cluster") findings = CheckCluster();
  if (all || args[0] == "images") {
    for (Finding& finding : CheckImages()) {
      findings.push_back(std::move(finding));
    }
  }
  std::fputs(FindingsToJson(findings).c_str(), stdout);
  return 0;
}

}  // namespace elasticdl::cli
