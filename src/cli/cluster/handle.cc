#include "cluster/handle.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cluster/logs.h"
#include "cluster/page_forward.h"
#include "cluster/pod_tracker.h"
#include "cluster/submit.h"
#include "elasticdl/cluster/job_objects.h"
#include "elasticdl/cluster/pod_view.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/status.h"

namespace elasticdl::cli {
namespace {

using cluster::PodView;
using kube::Json;

// Thread-compatible.
class ClusterJobHandle : public JobHandle {
 public:
  ClusterJobHandle(ClusterConnection cluster, std::string name)
      : cluster_(std::move(cluster)),
        name_(std::move(name)),
        pod_(cluster::MasterName(name_)) {}

  const std::string& name() const override { return name_; }

  absl::StatusOr<std::string> Get(const std::string& what) override {
    // What comes behind a question mark: NAME=VALUE.
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(what, absl::MaxSplits('?', 1));
    std::vector<std::pair<std::string, std::string>> query;
    if (!parts.second.empty()) {
      query.emplace_back(absl::StrSplit(parts.second, absl::MaxSplits('=', 1)));
    }
    return Ask("GET", {"api", "v1", parts.first}, query);
  }

  absl::Status Scale(int64_t num_workers, int64_t num_servers) override {
    std::vector<std::pair<std::string, std::string>> query;
    if (num_workers > 0) {
      query.emplace_back("num_workers", absl::StrCat(num_workers));
    }
    if (num_servers > 0) {
      query.emplace_back("num_ps_pods", absl::StrCat(num_servers));
    }
    return Ask("POST", {"api", "v1", "scale"}, query).status();
  }

  absl::StatusOr<std::string> Stop(const StopRequest& request) override {
    if (request.force) {
      ELASTICDL_RETURN_IF_ERROR(Remove());
      return absl::StrCat("job ", name_, " has been removed");
    }
    const absl::StatusOr<PodView> master = Master();
    if (absl::IsNotFound(master.status())) {
      ELASTICDL_RETURN_IF_ERROR(Remove());
      return absl::StrCat("removed the remains of job ", name_);
    }
    if (!master.ok()) return master.status();
    if (master->Ended()) {
      ELASTICDL_RETURN_IF_ERROR(Remove());
      return absl::StrCat("job ", name_, " had ended (", master->State(),
                          "); its objects are removed");
    }
    if (!master->running) {
      // There is no master to ask.
      ELASTICDL_RETURN_IF_ERROR(Remove());
      return absl::StrCat("job ", name_,
                          " has been removed; its master was not running",
                          master->waiting.empty() ? "" : ": ", master->waiting);
    }
    const auto answer = Ask("POST", {"api", "v1", "stop"}, {});
    if (!answer.ok()) {
      return Annotate(
          answer.status(),
          absl::StrCat("cannot ask the master; kubectl delete pod ", pod_,
                       " -n ", name_space(), " ends the job the hard way"));
    }
    ELASTICDL_RETURN_IF_ERROR(WaitStopped(*this, request.timeout));
    const std::string words =
        absl::StrCat("job ", name_, " has been stopped; its pods ");
    if (request.keep_pods) {
      return absl::StrCat(words, "stay for their logs");
    }
    ELASTICDL_RETURN_IF_ERROR(Remove());
    return absl::StrCat(words, "are removed");
  }

  bool WaitEnd(absl::Duration timeout) override {
    if (tracker_ == nullptr) {
      tracker_ = std::make_unique<PodTracker>(*cluster_.client,
                                              cluster::MasterSelector(name_));
    }
    const absl::Time deadline = Clock::Real().Now() + timeout;
    while (true) {
      const PodTracker::Snapshot now = tracker_->Get();
      const auto it = now.pods.find(pod_);
      if (now.synced && it == now.pods.end()) return true;
      if (it != now.pods.end() && it->second.Ended()) return true;
      if (!tracker_->WaitChange(now.version, deadline - Clock::Real().Now())) {
        return false;
      }
    }
  }

  JobEnd End() override {
    const absl::StatusOr<PodView> master = Master();
    if (!master.ok()) return {"removed", ""};
    return {master->State(), master->outcome_message};
  }

  absl::Status Logs(const LogRequest& request) override {
    return Explain(PrintClusterLogs(*cluster_.client, name_, request));
  }

  absl::StatusOr<JobPage> OpenPage(int port) override {
    // Says why there is no page, instead of a browser's error.
    ELASTICDL_RETURN_IF_ERROR(Status().status());
    PageForward::Options options;
    options.pod = pod_;
    options.pod_port = cluster::kHttpPort;
    ELASTICDL_ASSIGN_OR_RETURN(options.token, Token());
    options.port = port;
    ELASTICDL_ASSIGN_OR_RETURN(page_,
                               PageForward::Start(*cluster_.client, options));
    return JobPage{page_->url(), /*forwarded=*/true};
  }

 private:
  const std::string& name_space() const {
    return cluster_.client->namespace_name();
  }
  absl::Status Explain(const absl::Status& status) const {
    return ExplainClusterError(status, cluster_);
  }

  absl::StatusOr<PodView> Master() {
    const absl::StatusOr<Json> pod = cluster_.client->Get(kube::Pods(), pod_);
    if (!pod.ok()) return Explain(pod.status());
    return cluster::ViewPod(*pod);
  }

  absl::Status Remove() { return Explain(RemoveJob(*cluster_.client, name_)); }

  absl::StatusOr<std::string> Token() {
    const absl::StatusOr<Json> secret =
        cluster_.client->Get(kube::Secrets(), cluster::SecretName(name_));
    if (!secret.ok()) {
      return Annotate(Explain(secret.status()),
                      absl::StrCat("the token of job ", name_));
    }
    std::string token;
    if (!absl::Base64Unescape(kube::TextAt(*secret, "/data/token"), &token) ||
        token.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("Secret ", cluster::SecretName(name_),
                       " holds no token: is it of this version?"));
    }
    return token;
  }

  // Why the master does not answer, judging by its pod.
  absl::Status NoAnswer(const std::string& why) {
    const absl::StatusOr<PodView> master = Master();
    if (absl::IsNotFound(master.status())) {
      return absl::NotFoundError(
          absl::StrCat("job ", name_, " has no master pod any more"));
    }
    if (!master.ok()) return master.status();
    if (master->Ended()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "job ", name_, " is not running: it has ended (", master->State(),
          master->outcome_message.empty() ? "" : ": ", master->outcome_message,
          ")"));
    }
    if (!master->running) {
      return absl::UnavailableError(absl::StrCat(
          "job ", name_, ": its master does not run yet (", master->State(),
          master->waiting.empty() ? "" : ": ", master->waiting, ")"));
    }
    return absl::UnavailableError(
        absl::StrCat("job ", name_, ": no answer from its master: ", why));
  }

  absl::StatusOr<std::string> Ask(
      const std::string& method, const std::vector<std::string>& path,
      std::vector<std::pair<std::string, std::string>> query) {
    ELASTICDL_ASSIGN_OR_RETURN(const std::string token, Token());
    // The API server does not pass on the header Authorization.
    query.emplace_back("token", token);
    const absl::StatusOr<kube::Response> response =
        cluster_.client->Proxy({pod_, cluster::kHttpPort, method, path, query});
    if (!response.ok()) {
      return absl::IsPermissionDenied(response.status())
                 ? Explain(response.status())
                 : NoAnswer(std::string(response.status().message()));
    }
    ELASTICDL_RETURN_IF_ERROR(
        HttpAnswerToStatus(response->code, response->body, name_));
    return response->body;
  }

  const ClusterConnection cluster_;
  const std::string name_;
  const std::string pod_;
  std::unique_ptr<PodTracker> tracker_;
  // It uses the client.
  std::unique_ptr<PageForward> page_;
};

// The one that runs.
absl::StatusOr<std::string> OnlyJob(kube::Client& client) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<JobSummary> jobs,
                             ListClusterJobs(client));
  std::vector<std::string> running;
  for (const JobSummary& job : jobs) {
    if (job.state == "running" || job.state == "pending" ||
        job.state == "restarting") {
      running.push_back(job.job);
    }
  }
  if (running.size() == 1) return running[0];
  if (running.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no job is running in namespace ", client.namespace_name(),
        "; --job_name=NAME is for one that has ended (elasticdl list "
        "--namespace=",
        client.namespace_name(), " shows them)"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(running.size(), " jobs are running in namespace ",
                   client.namespace_name(), ": ", absl::StrJoin(running, ", "),
                   "; say which: --job_name=", running[0]));
}

// Does the job have any objects?
absl::Status CheckThere(const ClusterConnection& cluster,
                        const std::string& name) {
  kube::Client& client = *cluster.client;
  const auto pod = client.Get(kube::Pods(), cluster::MasterName(name));
  if (!absl::IsNotFound(pod.status())) return pod.status();
  const auto secret = client.Get(kube::Secrets(), cluster::SecretName(name));
  if (!absl::IsNotFound(secret.status())) return secret.status();
  ELASTICDL_RETURN_IF_ERROR(CheckNamespace(client));
  return absl::NotFoundError(absl::StrCat(
      "no job named ", name, " on this machine nor in namespace ",
      client.namespace_name(), " of ", cluster.server, " (", cluster.origin,
      "; elasticdl list --namespace=", client.namespace_name(),
      " shows those there)"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobHandle>> OpenClusterJob(
    ClusterConnection cluster, const std::string& name) {
  std::string job = name;
  if (name.empty()) {
    const absl::StatusOr<std::string> only = OnlyJob(*cluster.client);
    if (!only.ok()) return ExplainClusterError(only.status(), cluster);
    job = *only;
  } else if (absl::Status there = CheckThere(cluster, name); !there.ok()) {
    return ExplainClusterError(there, cluster);
  }
  return std::make_unique<ClusterJobHandle>(std::move(cluster), std::move(job));
}

absl::StatusOr<std::vector<JobSummary>> ListClusterJobs(kube::Client& client) {
  ELASTICDL_ASSIGN_OR_RETURN(
      const Json pods,
      client.List(kube::Pods(), cluster::AllMastersSelector()));
  std::vector<JobSummary> jobs;
  for (const Json& pod : kube::ListAt(pods, "/items")) {
    const PodView view = cluster::ViewPod(pod);
    jobs.push_back(
        {view.job_name, view.State(),
         view.outcome_message.empty() ? view.waiting : view.outcome_message,
         "namespace", client.namespace_name()});
  }
  return jobs;
}

}  // namespace elasticdl::cli
