// Submitting, following, asking and removing jobs, against a fake API server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/fake_cluster.h"
#include "cluster/check.h"
#include "cluster/cluster_commands.h"
#include "cluster/connection.h"
#include "cluster/follow.h"
#include "cluster/handle.h"
#include "cluster/submit.h"
#include "elasticdl/cluster/job_objects.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/signals.h"
#include "open.h"
#include "support/temp_dir.h"
#include "top_scale_stop_logs.h"

namespace elasticdl::cli {
namespace {

using kube::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kPod[] = "elasticdl-master-j";
constexpr char kPodKey[] = "pods/elasticdl-master-j";
constexpr char kServiceKey[] = "services/elasticdl-master-j";
constexpr char kSecretKey[] = "secrets/elasticdl-job-j";

class ClusterJobTest : public ::testing::Test {
 protected:
  ClusterJobTest() : client_(cluster_.NewClient()) {
    cluster::JobOptions options;
    options.job_name = "j";
    options.namespace_name = "ns";
    options.token = "s3cret";
    options.master.image = options.worker.image = options.ps.image = "i";
    objects_ = *cluster::MakeJobObjects(options);
    secret_ = cluster::MakeSecret(options, objects_);
  }

  absl::StatusOr<Json> Submit() {
    return SubmitJob(*client_, "j", secret_, objects_,
                     [this](const std::string& words) { said_ += words; });
  }
  absl::Status Check(bool has_servers = false) {
    return CheckSubmission(*client_,
                           {"j", secret_, objects_, {""}, has_servers});
  }
  // The exit code of following the job; its output in out_ and err_.
  int Follow() {
    process::SignalWatcher signals({SIGUSR1});
    FollowOptions options;
    options.command = "elasticdl train";
    options.job_name = "j";
    options.uid = cluster_.Get(kPodKey)["metadata"]["uid"];
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = FollowJob(*client_, options, signals);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }
  std::unique_ptr<JobHandle> Open(const std::string& name = "j") {
    ClusterConnection connection;
    connection.client = cluster_.NewClient();
    connection.server = "https://test";
    connection.origin = "a test";
    auto job = OpenClusterJob(std::move(connection), name);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *std::move(job) : nullptr;
  }
  void End(int exit_code) {
    cluster_.SetPod(kPod, exit_code == 0 ? "Succeeded" : "Failed",
                    {{"terminated", {{"exitCode", exit_code}}}});
  }

  test::FakeCluster cluster_;
  std::unique_ptr<kube::Client> client_;
  cluster::JobObjects objects_;
  Json secret_;
  std::string said_;
  std::string out_;
  std::string err_;
};

TEST_F(ClusterJobTest, SubmissionMakesAllAndTheyBelongToThePod) {
  const auto pod = Submit();
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_THAT(cluster_.Names(), ElementsAre(kPodKey, kSecretKey, kServiceKey));
  for (const char* key : {kSecretKey, kServiceKey}) {
    EXPECT_EQ(cluster_.Get(key)["metadata"]["ownerReferences"][0]["uid"],
              (*pod)["metadata"]["uid"]);
  }
  cluster_.Remove(kPodKey);
  EXPECT_THAT(cluster_.Names(), IsEmpty());
}

TEST_F(ClusterJobTest, FailureHalfWayLeavesNothing) {
  for (const char* what : {"POST secrets", "POST services", "POST pods",
                           "PATCH secrets", "PATCH services"}) {
    cluster_.Refuse(what, 403, "no");
    EXPECT_EQ(Submit().status().code(), absl::StatusCode::kPermissionDenied)
        << what;
    EXPECT_THAT(cluster_.Names(), IsEmpty()) << what;
    cluster_.Refuse(what, 0, "");
  }
  // No answer: it may have been made.
  cluster_.Refuse("POST services", 503, "try again");
  EXPECT_FALSE(Submit().ok());
  EXPECT_THAT(cluster_.calls(),
              ::testing::Contains("DELETE services/elasticdl-master-j"));
  EXPECT_THAT(cluster_.Names(), IsEmpty());
}

TEST_F(ClusterJobTest, RunningJobOfTheNameIsLeftAlone) {
  ASSERT_TRUE(Submit().ok());
  const std::vector<std::string> before = cluster_.Names();
  const absl::Status status = Submit().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("elasticdl stop --job_name=j --namespace=ns"));
  EXPECT_EQ(cluster_.Names(), before);
}

TEST_F(ClusterJobTest, EndedJobOfTheNameMakesRoom) {
  const auto first = Submit();
  ASSERT_TRUE(first.ok());
  End(1);
  cluster_.Put("pods/elasticdl-worker-j-0",
               {{"metadata", {{"labels", {{"elasticdl-job-name", "j"}}}}}});
  cluster_.Put("pods/other",
               {{"metadata", {{"labels", {{"elasticdl-job-name", "k"}}}}}});
  const auto second = Submit();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE((*second)["metadata"]["uid"], (*first)["metadata"]["uid"]);
  EXPECT_THAT(said_, HasSubstr("removing an earlier job j, which has ended"));
  EXPECT_THAT(cluster_.Names(),
              ElementsAre(kPodKey, "pods/other", kSecretKey, kServiceKey));
}

TEST_F(ClusterJobTest, LeftoversAreReplacedOnlyWhenTheirPodIsGone) {
  cluster_.Put(kSecretKey, {{"metadata", Json::object()}});
  const absl::Status status = Submit().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("elasticdl stop"));
  EXPECT_THAT(cluster_.Names(), ElementsAre(kSecretKey));
  Json owners = Json::array();
  owners.push_back({{"uid", "gone"}});
  cluster_.Merge(kSecretKey, {{"metadata", {{"ownerReferences", owners}}}});
  const auto pod = Submit();
  EXPECT_TRUE(pod.ok()) << pod.status() << cluster_.Get(kSecretKey);
}

// Before anything is built or created ----------------------------------------

TEST_F(ClusterJobTest, CheckChangesNothing) {
  EXPECT_TRUE(Check().ok()) << Check();
  EXPECT_THAT(cluster_.Names(), IsEmpty());
  EXPECT_THAT(cluster_.calls(), ::testing::Contains("TRY pods"));
  EXPECT_THAT(cluster_.calls(), Not(::testing::Contains("POST pods")));
}

TEST_F(ClusterJobTest, CheckFindsAMissingNamespace) {
  cluster_.RemoveNamespace();
  EXPECT_EQ(Check().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Check().message()), HasSubstr("namespaces \"ns\""));
  // One that may not be asked for is no reason to give up.
  cluster_.Refuse("GET namespaces", 403, "no");
  cluster_.Refuse("TRY secrets", 422, "bad secret");
  EXPECT_EQ(Check().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ClusterJobTest, CheckFindsATakenName) {
  ASSERT_TRUE(Submit().ok());
  EXPECT_EQ(Check().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(Check().message()), HasSubstr("elasticdl stop"));
  End(0);
  EXPECT_TRUE(Check().ok()) << Check();
  cluster_.Remove(kPodKey);
  cluster_.Put(kSecretKey, {{"metadata", Json::object()}});
  EXPECT_EQ(Check().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(Check().message()), HasSubstr("elasticdl stop"));
}

TEST_F(ClusterJobTest, CheckFindsMissingRightsOfBothParties) {
  cluster_.Deny("create pods", /*account=*/true);
  EXPECT_EQ(
      Check().message(),
      "the job's master will run as service account default, which may not "
      "create pods in namespace ns; an administrator can grant it: elasticdl "
      "rbac --namespace=ns --apply");
  cluster_.Deny("create secrets");
  cluster_.Deny("get pods/log");
  EXPECT_EQ(
      Check().message(),
      "user ann may not get pods/log, create secrets in namespace ns; an "
      "administrator can grant it: elasticdl rbac --client --namespace=ns "
      "--user=ann --apply");
}

TEST_F(ClusterJobTest, CheckTriesServersOfJobsThatHaveThem) {
  const auto tries = [&](bool has_servers) {
    const auto before = cluster_.calls().size();
    EXPECT_TRUE(Check(has_servers).ok());
    const auto calls = cluster_.calls();
    return std::count(calls.begin() + static_cast<int64_t>(before), calls.end(),
                      "TRY pods");
  };
  EXPECT_EQ(tries(true), tries(false) + 1);
}

TEST_F(ClusterJobTest, CheckFindsWhatTheServerWouldRefuse) {
  cluster_.Refuse("TRY pods", 422, "must be less than or equal to cpu limit");
  EXPECT_EQ(Check().code(), absl::StatusCode::kInvalidArgument);
  cluster_.Refuse("TRY pods", 400,
                  "admission webhook does not support dry run");
  EXPECT_TRUE(Check().ok()) << Check();
  Json volumes = Json::array();
  volumes.push_back(
      {{"name", "v"}, {"persistentVolumeClaim", {{"claimName", "no-such"}}}});
  objects_.master_pod["spec"]["volumes"] = volumes;
  EXPECT_THAT(std::string(Check().message()),
              HasSubstr("there is no claim no-such in namespace ns"));
  cluster_.Put("persistentvolumeclaims/no-such",
               {{"metadata", Json::object()}});
  EXPECT_TRUE(Check().ok()) << Check();
}

TEST_F(ClusterJobTest, FollowShowsLogAndExitCode) {
  ASSERT_TRUE(Submit().ok());
  Thread cluster("cluster", [&] {
    cluster_.AppendLog(kPod, "one\n");
    cluster_.SetPod(kPod, "Running", {{"running", Json::object()}});
    cluster_.AppendLog(kPod, "two\n");
    End(4);
  });
  EXPECT_EQ(Follow(), 4);
  cluster.Join();
  EXPECT_EQ(out_, "one\ntwo\n");
  EXPECT_THAT(err_, HasSubstr("job j failed (exit code 4)"));
}

TEST_F(ClusterJobTest, FollowTellsWhyThePodWaits) {
  ASSERT_TRUE(Submit().ok());
  cluster_.SetPod(
      kPod, "Failed",
      {{"waiting", {{"reason", "ErrImagePull"}, {"message", "no such"}}}});
  EXPECT_EQ(Follow(), 1);
  EXPECT_THAT(err_, HasSubstr("the master is pending: ErrImagePull: no such"));
  EXPECT_THAT(err_, HasSubstr("job j failed"));
}

TEST_F(ClusterJobTest, FollowTakesTheMastersWordForTheOutcome) {
  ASSERT_TRUE(Submit().ok());
  cluster_.Merge(kPodKey, {{"metadata",
                            {{"annotations",
                              {{"elasticdl/outcome", "failed"},
                               {"elasticdl/message", "no worker left"}}}}}});
  cluster_.AppendLog(kPod, "bye\n");
  cluster_.SetPod(kPod, "Running", {{"terminated", {{"exitCode", 3}}}});
  EXPECT_EQ(Follow(), 3);
  EXPECT_EQ(out_, "bye\n");
  EXPECT_THAT(err_, HasSubstr("job j failed: no worker left (exit code 3)"));
}

TEST_F(ClusterJobTest, FollowEndsWithThePod) {
  ASSERT_TRUE(Submit().ok());
  cluster_.after_call = [&](const std::string& call) {
    if (call == "GET pods") cluster_.Remove(kPodKey);
  };
  EXPECT_EQ(Follow(), 1);
  EXPECT_THAT(err_, HasSubstr("has been deleted"));
}

TEST_F(ClusterJobTest, SignalDetachesAndTheJobGoesOn) {
  ASSERT_TRUE(Submit().ok());
  cluster_.SetPod(kPod, "Running", {{"running", Json::object()}});
  cluster_.after_call = [&](const std::string& call) {
    if (call == "GET pods") kill(getpid(), SIGUSR1);
  };
  EXPECT_EQ(Follow(), 128 + SIGUSR1);
  EXPECT_THAT(err_, HasSubstr("detached; job j keeps running"));
  EXPECT_THAT(err_, HasSubstr("elasticdl stop --job_name=j --namespace=ns"));
  EXPECT_EQ(cluster_.Names().size(), 3u);
}

TEST_F(ClusterJobTest, StatusAndScaleGoThroughTheServer) {
  ASSERT_TRUE(Submit().ok());
  cluster_.SetPod(kPod, "Running", {{"running", Json::object()}});
  std::vector<std::string> asked;
  kube::Response answer = {200, "{\"job\":\"j\"}"};
  cluster_.proxy = [&](const kube::Request& request) {
    std::string text = absl::StrCat(request.method, " ", request.path[5]);
    for (size_t i = 7; i < request.path.size(); ++i) {
      absl::StrAppend(&text, "/", request.path[i]);
    }
    for (const auto& [key, value] : request.query) {
      absl::StrAppend(&text, " ", key, "=", value);
    }
    asked.push_back(text);
    return answer;
  };
  const auto job = Open();
  EXPECT_EQ(*job->Status(), "{\"job\":\"j\"}");
  EXPECT_TRUE(job->Scale(3, 0).ok());
  EXPECT_THAT(
      asked,
      ElementsAre("GET elasticdl-master-j:8080/api/v1/status token=s3cret",
                  "POST elasticdl-master-j:8080/api/v1/scale "
                  "num_workers=3 token=s3cret"));
  EXPECT_TRUE(job->Scale(0, 2).ok());
  EXPECT_EQ(asked.back(),
            "POST elasticdl-master-j:8080/api/v1/scale num_ps_pods=2 "
            "token=s3cret");
  answer = {409, R"({"error":"the job is ending"})"};
  const absl::Status status = job->Scale(3, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "job j: the job is ending");
}

TEST_F(ClusterJobTest, OpenForwardsThePageUntilTheJobHasEnded) {
  ASSERT_TRUE(Submit().ok());
  cluster_.SetPod(kPod, "Running", {{"running", Json::object()}});
  cluster_.proxy = [&](const kube::Request&) {
    return kube::Response{200, "{\"job\":\"j\"}"};
  };
  test::TempDir state;
  const JobFinder find = [&](const JobChoice& choice) {
    EXPECT_EQ(choice.job_name, "j");
    // Whoever waits for its end comes after this.
    cluster_.after_call = [&](const std::string& call) {
      if (call != "GET secrets/elasticdl-job-j") return;
      cluster_.SetPod(kPod, "Succeeded", {{"terminated", {{"exitCode", 0}}}});
    };
    return absl::StatusOr<std::unique_ptr<JobHandle>>(Open());
  };
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code =
      OpenCommand({"--job_name=j", "--state_dir=" + state.path()}, find);
  const std::string out = ::testing::internal::GetCapturedStdout();
  const std::string err = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 0) << err;
  EXPECT_THAT(out, HasSubstr("http://127.0.0.1:"));
  EXPECT_THAT(out, HasSubstr("/?token="));
  EXPECT_THAT(out, Not(HasSubstr("s3cret")));
  EXPECT_THAT(err, HasSubstr("Ctrl-C ends only that"));
  EXPECT_THAT(err, HasSubstr("job j succeeded"));
}

TEST_F(ClusterJobTest, OpenSaysWhyThereIsNoPage) {
  ASSERT_TRUE(Submit().ok());
  cluster_.SetPod(kPod, "Succeeded", {{"terminated", {{"exitCode", 0}}}});
  cluster_.proxy = [&](const kube::Request&) {
    return kube::Response{503, R"({"kind":"Status","message":"no endpoint"})"};
  };
  const auto page = Open()->OpenPage(0);
  EXPECT_EQ(page.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(page.status().message()),
              HasSubstr("job j is not running: it has ended"));
}

TEST_F(ClusterJobTest, TopShowsWhyAPodIsPending) {
  ASSERT_TRUE(Submit().ok());
  cluster_.SetPod(kPod, "Running", {{"running", Json::object()}});
  cluster_.proxy = [&](const kube::Request&) {
    return kube::Response{
        200, R"({"job":"j","state":"running","pods":[)"
             R"({"name":"elasticdl-worker-j-0","type":"worker","pid":0,)"
             R"("state":"Running","message":""},)"
             R"({"name":"elasticdl-worker-j-1","type":"worker","pid":0,)"
             R"("state":"Pending","message":"1 Insufficient cpu"}]})"};
  };
  ::testing::internal::CaptureStdout();
  const int code = TopCommand({"--job_name=j"},
                              [&](const JobChoice& choice) { return Open(); });
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0);
  EXPECT_THAT(out, HasSubstr("-  Running\n"));
  EXPECT_THAT(out, HasSubstr("-  Pending: 1 Insufficient cpu\n"));
}

TEST_F(ClusterJobTest, MasterThatDoesNotAnswerIsExplained) {
  ASSERT_TRUE(Submit().ok());
  cluster_.proxy = [&](const kube::Request&) {
    return kube::Response{
        503, R"({"kind":"Status","message":"connection refused"})"};
  };
  const auto job = Open();
  cluster_.SetPod(kPod, "Pending", {{"waiting", {{"reason", "ErrImagePull"}}}});
  EXPECT_THAT(std::string(job->Status().status().message()),
              HasSubstr("does not run yet (pending: ErrImagePull)"));
  cluster_.SetPod(kPod, "Running", {{"running", Json::object()}});
  EXPECT_THAT(std::string(job->Status().status().message()),
              HasSubstr("connection refused"));
  End(0);
  const absl::Status ended = job->Status().status();
  EXPECT_EQ(ended.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(ended.message()), HasSubstr("succeeded"));
  cluster_.proxy = [&](const kube::Request&) {
    return kube::Response{403, R"({"kind":"Status","message":"pods is )"
                               R"(forbidden: User \"ann\" cannot create )"
                               R"(resource \"pods/proxy\" in API group \"\" )"
                               R"(in the namespace \"ns\""})"};
  };
  EXPECT_THAT(std::string(job->Scale(2, 0).message()),
              HasSubstr("user ann may not create pods/proxy"));
}

TEST_F(ClusterJobTest, StopAsksARunningMasterAndWaits) {
  ASSERT_TRUE(Submit().ok());
  cluster_.SetPod(kPod, "Running", {{"running", Json::object()}});
  cluster_.proxy = [&](const kube::Request& request) {
    EXPECT_EQ(request.path.back(), "stop");
    End(0);
    return kube::Response{200, "{}"};
  };
  const auto job = Open();
  EXPECT_FALSE(job->WaitEnd(absl::ZeroDuration()));
  StopRequest keep;
  keep.keep_pods = true;
  EXPECT_EQ(*job->Stop(keep),
            "job j has been stopped; its pods stay for their logs");
  EXPECT_EQ(job->End().state, "succeeded");
  // The second time it removes what is left.
  EXPECT_THAT(*Open()->Stop({}), HasSubstr("its objects are removed"));
  EXPECT_THAT(cluster_.Names(), IsEmpty());
}

TEST_F(ClusterJobTest, StopIsNeededOnce) {
  ASSERT_TRUE(Submit().ok());
  cluster_.SetPod(kPod, "Running", {{"running", Json::object()}});
  cluster_.proxy = [&](const kube::Request&) {
    End(0);
    return kube::Response{200, "{}"};
  };
  EXPECT_EQ(*Open()->Stop({}), "job j has been stopped; its pods are removed");
  EXPECT_THAT(cluster_.Names(), IsEmpty());
}

TEST_F(ClusterJobTest, AForcedStopAsksNobody) {
  ASSERT_TRUE(Submit().ok());
  cluster_.SetPod(kPod, "Running", {{"running", Json::object()}});
  cluster_.proxy = [&](const kube::Request&) {
    ADD_FAILURE() << "the master was asked";
    return kube::Response{503, "{}"};
  };
  StopRequest force;
  force.force = true;
  EXPECT_EQ(*Open()->Stop(force), "job j has been removed");
  EXPECT_THAT(cluster_.Names(), IsEmpty());
}

TEST_F(ClusterJobTest, FollowTellsAStopAlsoWhenThePodIsGoneByThen) {
  ASSERT_TRUE(Submit().ok());
  cluster_.after_call = [&](const std::string& call) {
    if (call != "GET pods") return;
    cluster_.Merge(kPodKey, {{"metadata",
                              {{"deletionTimestamp", "2020-01-01T00:00:00Z"},
                               {"annotations",
                                {{"elasticdl/outcome", "stopped"},
                                 {"elasticdl/exit-code", "130"},
                                 {"elasticdl/message", "by request"}}}}}});
    cluster_.Remove(kPodKey);
  };
  EXPECT_EQ(Follow(), 130);
  EXPECT_THAT(err_, HasSubstr("job j stopped: by request"));
  EXPECT_THAT(err_, HasSubstr("its master pod is deleted, and with it all"));
  EXPECT_THAT(err_, Not(HasSubstr("stay for their logs")));
}

TEST_F(ClusterJobTest, StopRemovesAMasterThatNeverRan) {
  ASSERT_TRUE(Submit().ok());
  EXPECT_THAT(*Open()->Stop({}), HasSubstr("has been removed"));
  EXPECT_THAT(cluster_.Names(), IsEmpty());
  // What a submission without its master left.
  cluster_.Put(kSecretKey, {{"metadata", Json::object()}});
  EXPECT_THAT(*Open()->Stop({}), HasSubstr("removed the remains of job j"));
  EXPECT_THAT(cluster_.Names(), IsEmpty());
}

TEST_F(ClusterJobTest, LogsOfOneOrAllPods) {
  ASSERT_TRUE(Submit().ok());
  End(0);
  cluster_.AppendLog(kPod, "m\n");
  for (const char* id : {"0", "1"}) {
    const std::string pod = absl::StrCat("elasticdl-worker-j-", id);
    cluster_.Put("pods/" + pod, {{"metadata",
                                  {{"labels",
                                    {{"elasticdl-job-name", "j"},
                                     {"elasticdl-replica-type", "worker"}}}}}});
    cluster_.SetPod(pod, "Succeeded", {{"terminated", {{"exitCode", 0}}}});
    cluster_.AppendLog(pod, absl::StrCat("w", id));
  }
  const auto logs = [&](const LogRequest& request) {
    ::testing::internal::CaptureStdout();
    const absl::Status status = Open()->Logs(request);
    EXPECT_TRUE(status.ok()) << status;
    return ::testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(logs({"master"}), "m\n");
  EXPECT_EQ(logs({kPod}), "m\n");
  EXPECT_EQ(logs({"1"}), "w1\n");
  EXPECT_EQ(logs({"1", /*follow=*/true}), "w1\n");
  const std::string all = logs({});
  EXPECT_THAT(all, HasSubstr("==> elasticdl-master-j <==\nm\n"));
  EXPECT_THAT(all, HasSubstr("==> elasticdl-worker-j-1 <==\nw1\n"));
  EXPECT_THAT(std::string(Open()->Logs({"7"}).message()),
              HasSubstr("elasticdl-worker-j-0"));
}

TEST_F(ClusterJobTest, FollowedLogsTakeInPodsThatComeLater) {
  ASSERT_TRUE(Submit().ok());
  cluster_.SetPod(kPod, "Running", {{"running", Json::object()}});
  cluster_.AppendLog(kPod, "m\n");
  Thread cluster("cluster", [&] {
    cluster_.Put("pods/elasticdl-worker-j-5",
                 {{"metadata",
                   {{"labels",
                     {{"elasticdl-job-name", "j"},
                      {"elasticdl-replica-type", "worker"}}}}}});
    cluster_.AppendLog("elasticdl-worker-j-5", "late\n");
    cluster_.SetPod("elasticdl-worker-j-5", "Succeeded",
                    {{"terminated", {{"exitCode", 0}}}});
    End(0);
  });
  ::testing::internal::CaptureStdout();
  LogRequest request;
  request.follow = true;
  const absl::Status status = Open()->Logs(request);
  const std::string out = ::testing::internal::GetCapturedStdout();
  cluster.Join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(out, HasSubstr("m\n"));
  EXPECT_THAT(out, HasSubstr("==> elasticdl-worker-j-5 <==\nlate\n"));
}

TEST_F(ClusterJobTest, JobsAreFoundByNameOrAlone) {
  ClusterConnection connection;
  connection.client = cluster_.NewClient();
  connection.server = "https://test";
  EXPECT_THAT(
      std::string(
          OpenClusterJob(std::move(connection), "x").status().message()),
      HasSubstr("no job named x on this machine nor in namespace ns"));
  ASSERT_TRUE(Submit().ok());
  EXPECT_EQ(Open("")->name(), "j");
  cluster_.RemoveNamespace();
  ClusterConnection lost;
  lost.client = cluster_.NewClient();
  lost.server = "https://test";
  EXPECT_THAT(
      std::string(OpenClusterJob(std::move(lost), "x").status().message()),
      HasSubstr("there is no namespace ns"));
  const auto jobs = ListClusterJobs(*client_);
  ASSERT_TRUE(jobs.ok());
  ASSERT_EQ(jobs->size(), 1u);
  EXPECT_EQ((*jobs)[0].job, "j");
  EXPECT_EQ((*jobs)[0].state, "pending");
  EXPECT_EQ((*jobs)[0].place, "ns");
}

TEST_F(ClusterJobTest, ErrorsOfTheClusterAreExplained) {
  ClusterConnection connection;
  connection.client = cluster_.NewClient();
  connection.server = "https://test";
  connection.origin = "context c";
  const auto explain = [&](const absl::Status& status) {
    return std::string(ExplainClusterError(status, connection).message());
  };
  EXPECT_THAT(explain(absl::UnavailableError("refused")),
              HasSubstr("no answer from the cluster at https://test"));
  EXPECT_THAT(explain(absl::NotFoundError("namespaces \"ns\" not found")),
              HasSubstr("kubectl create namespace ns"));
  EXPECT_THAT(explain(absl::UnauthenticatedError("Unauthorized")),
              HasSubstr("context c"));
  EXPECT_TRUE(ExplainClusterError(absl::OkStatus(), connection).ok());
}

}  // namespace
}  // namespace elasticdl::cli
