// Pods as JSON: filling in a template, and reading what real clusters say.
#include "kube_pod.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace elasticdl::master {
namespace {

using kube::Json;
using kube::ListAt;
using kube::TextAt;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Json Parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << text;
  return json;
}

Json Template() {
  return Parse(R"({
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {"labels": {"team": "red"}, "annotations": {"a": "b"}},
    "spec": {
      "restartPolicy": "Never", "futureField": {"x": [1]},
      "containers": [
        {"name": "helper", "image": "h"},
        {"name": "worker", "image": "i", "command": ["elasticdl-worker"],
         "args": ["--log_level=INFO"],
         "env": [{"name": "MY_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                 {"name": "A", "value": "old"}]}]}})");
}

KubeJob Job() {
  return {"job1", "elasticdl-master-job1", "uid-1", "1.2.3.4:50001"};
}

PodSpec Worker(int64_t id) {
  PodSpec spec;
  spec.name = PodName(PodType::kWorker, "job1", id);
  spec.id = id;
  return spec;
}

TEST(MakePodTest, FillsInWhatDiffersAndKeepsTheRest) {
  PodSpec spec = Worker(7);
  spec.priority = "high";
  spec.env = {{"A", "new"}, {"B", "b=c"}};
  const auto pod = MakePod(Template(), spec, Job());
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ(*pod, Parse(R"({
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {
      "name": "elasticdl-worker-job1-7",
      "annotations": {"a": "b"},
      "labels": {"team": "red", "app": "elasticdl",
        "elasticdl_job_name": "job1", "elasticdl-job-name": "job1",
        "elasticdl-replica-type": "worker", "elasticdl-replica-index": "7"},
      "ownerReferences": [{"apiVersion": "v1", "kind": "Pod",
        "name": "elasticdl-master-job1", "uid": "uid-1", "controller": true}]},
    "spec": {
      "restartPolicy": "Never", "futureField": {"x": [1]},
      "priorityClassName": "high",
      "containers": [
        {"name": "helper", "image": "h"},
        {"name": "worker", "image": "i", "command": ["elasticdl-worker"],
         "args": ["--log_level=INFO", "--worker_id=7",
                  "--master_addr=1.2.3.4:50001"],
         "env": [{"name": "MY_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                 {"name": "A", "value": "new"}, {"name": "B", "value": "b=c"}]}]}})"));
}

TEST(MakePodTest, WithoutOwnerPriorityAndArguments) {
  const Json bare = Parse(
      R"({"kind": "Pod", "spec": {"priorityClassName": "mine",
          "containers": [{"name": "c"}]}})");
  KubeJob job = Job();
  job.owner_uid = "";
  const auto pod = MakePod(bare, Worker(0), job);
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ(TextAt(*pod, "/spec/priorityClassName"), "mine");
  EXPECT_FALSE((*pod)["metadata"].contains("ownerReferences"));
  EXPECT_EQ(ListAt((*pod)["spec"]["containers"][0], "/args").size(), 2u);
}

TEST(MakePodTest, BadTemplatesAreRefused) {
  for (const char* text :
       {"null", "[]", "{}", R"({"kind": "Service"})", R"({"kind": "Pod"})",
        R"({"kind": "Pod", "spec": {"containers": []}})",
        R"({"kind": "Pod", "spec": {"containers": ["x"]}})"}) {
    EXPECT_EQ(MakePod(Parse(text), Worker(0), Job()).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(MakePodTest, SelectorFindsThem) {
  EXPECT_EQ(cluster::ReplicaSelector(Job().name),
            "elasticdl-job-name=job1,elasticdl-replica-type in (worker,ps)");
}

TEST(MakePodTest, PodsOfAnEarlierJobAreNotOurs) {
  const Json ours = *MakePod(Template(), Worker(0), Job());
  EXPECT_TRUE(cluster::IsReplicaOf(Job(), ours));
  KubeJob next = Job();
  next.owner_uid = "uid-2";
  EXPECT_FALSE(cluster::IsReplicaOf(next, ours));
  EXPECT_FALSE(cluster::IsReplicaOf(next, Json()));
  next.owner_uid = "";
  EXPECT_TRUE(cluster::IsReplicaOf(next, ours));
}

// Reading ---------------------------------------------------------------------

// A pod with this status; `metadata` is added to the metadata.
PodEvent Describe(const std::string& status, const std::string& metadata = "") {
  return DescribePod(Parse(absl::StrCat(
      R"({"metadata": {"name": "elasticdl-worker-j-3", "labels": {
          "elasticdl-replica-type": "worker", "elasticdl-replica-index": "3"})",
      metadata.empty() ? "" : ", ", metadata,
      R"(}, "spec": {"priorityClassName": "low"}, "status": )", status, "}")));
}

constexpr char kDeletion[] =
    R"("deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 30)";

// Status with the main container ended.
std::string Ended(const std::string& phase, int code, const std::string& reason,
                  const std::string& more = "") {
  return absl::StrCat(R"({"phase": ")", phase,
                      R"(", "containerStatuses": [{"name": "worker", "ready":
                      false, "restartCount": 0, "state": {"terminated": {
                      "exitCode": )",
                      code, R"(, "reason": ")", reason,
                      R"(", "message": "last words\n"}}}])",
                      more.empty() ? "" : ", ", more, "}");
}

TEST(DescribePodTest, IdentityComesFromTheLabels) {
  const PodEvent event = Describe(R"({"phase": "Running"})");
  EXPECT_EQ(event.name, "elasticdl-worker-j-3");
  EXPECT_EQ(event.id, 3);
  EXPECT_EQ(event.type, PodType::kWorker);
  EXPECT_EQ(event.priority, "low");
  EXPECT_EQ(event.phase, PodPhase::kRunning);
  EXPECT_FALSE(event.terminating);
  EXPECT_TRUE(event.create_error.ok());
  const PodEvent ps = DescribePod(Parse(
      R"({"metadata": {"name": "x", "labels": {"elasticdl-replica-type": "ps",
          "elasticdl-replica-index": "two"}}})"));
  EXPECT_EQ(ps.type, PodType::kPs);
  EXPECT_EQ(ps.id, -1);
  EXPECT_EQ(ps.phase, PodPhase::kPending);
  const PodEvent again = DescribePod(Parse(
      R"({"metadata": {"name": "elasticdl-ps-j-1-r4", "labels": {
          "elasticdl-replica-type": "ps", "elasticdl-replica-index": "1"}}})"));
  EXPECT_EQ(again.id, 1);
  EXPECT_EQ(again.attempt, 4);
}

TEST(DescribePodTest, ContainersThatWereStartedAgain) {
  const auto restarted = [](const std::string& end) {
    return DescribePod(Parse(absl::StrCat(
        R"({"metadata": {"name": "elasticdl-ps-j-1", "labels": {
            "elasticdl-replica-type": "ps", "elasticdl-replica-index": "1"}},
            "status": {"phase": "Running", "containerStatuses": [
            {"name": "helper", "restartCount": 7},
            {"name": "ps", "restartCount": 2, "state": {"running": {}},
             "lastState": {"terminated": )",
        end, "}}]}}")));
  };
  PodEvent event = restarted(
      R"({"exitCode": 1, "reason": "Error", "message": "no space\n"})");
  EXPECT_EQ(event.phase, PodPhase::kRunning);
  EXPECT_EQ(event.restarts, 2);
  EXPECT_EQ(event.restart_reason, "exit code 1: no space");
  EXPECT_TRUE(event.restart_failure);
  event = restarted(R"({"exitCode": 137, "reason": "Error"})");
  EXPECT_FALSE(event.restart_failure);
  event = restarted(R"({"exitCode": 137, "reason": "OOMKilled"})");
  EXPECT_TRUE(event.restart_failure);
  EXPECT_EQ(event.restart_reason, "OOMKilled, exit code 137");
}

TEST(DescribePodTest, PendingSaysWhy) {
  // As the scheduler of 1.20 writes it.
  PodEvent event = Describe(R"({"phase": "Pending", "qosClass": "Burstable",
    "conditions": [{"type": "PodScheduled", "status": "False",
      "reason": "Unschedulable",
      "message": "0/1 nodes are available: 1 Insufficient cpu."}]})");
  EXPECT_EQ(event.phase, PodPhase::kPending);
  EXPECT_EQ(event.message, "0/1 nodes are available: 1 Insufficient cpu.");
  // As the kubelet writes it.
  event = Describe(R"({"phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "True"},
                   {"type": "Ready", "status": "False", "reason":
                    "ContainersNotReady", "message": "containers with unready status: [worker]"}],
    "containerStatuses": [{"name": "worker", "state": {"waiting": {
      "reason": "ImagePullBackOff",
      "message": "Back-off pulling image \"nowhere/x:1\""}}}]})");
  EXPECT_EQ(event.message,
            "ImagePullBackOff: Back-off pulling image \"nowhere/x:1\"");
  // The ordinary way up is nothing to tell.
  event = Describe(R"({"phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "True"}],
    "containerStatuses": [{"name": "worker", "state": {"waiting": {
      "reason": "ContainerCreating"}}}]})");
  EXPECT_EQ(event.message, "");
  event = Describe(R"({"phase": "Pending", "initContainerStatuses": [
    {"name": "init", "state": {"waiting": {"reason":
     "CreateContainerConfigError", "message": "secret \"s\" not found"}}}]})");
  EXPECT_EQ(event.message,
            "CreateContainerConfigError: secret \"s\" not found");
}

TEST(DescribePodTest, Ends) {
  struct Case {
    const char* what;
    std::string status;
    std::string metadata;
    PodPhase phase;
    PodEndReason reason;
    int exit_code;
  };
  const std::string disrupted =
      R"("conditions": [{"type": "DisruptionTarget", "status": "True",
         "reason": "PreemptionByScheduler"}])";
  const Case cases[] = {
      {"success", Ended("Succeeded", 0, "Completed"), "", PodPhase::kSucceeded,
       PodEndReason::kNone, 0},
      {"exit 3", Ended("Failed", 3, "Error"), "", PodPhase::kFailed,
       PodEndReason::kError, 3},
      {"killed inside", Ended("Failed", 137, "Error"), "", PodPhase::kFailed,
       PodEndReason::kError, 137},
      {"out of memory", Ended("Failed", 137, "OOMKilled"), "",
       PodPhase::kFailed, PodEndReason::kOomKilled, 137},
      {"out of memory while it was deleted", Ended("Failed", 137, "OOMKilled"),
       kDeletion, PodPhase::kFailed, PodEndReason::kOomKilled, 137},
      {"evicted, container known",
       Ended("Failed", 137, "Error", R"("reason": "Evicted")"), "",
       PodPhase::kFailed, PodEndReason::kEvicted, 137},
      {"evicted, as old kubelets say it",
       R"({"phase": "Failed", "reason": "Evicted", "message":
        "The node was low on resource: memory."})",
       "", PodPhase::kFailed, PodEndReason::kEvicted, -1},
      {"preempted by the kubelet",
       R"({"phase": "Failed", "reason": "Preempting", "message":
        "Preempted in order to admit critical pod"})",
       "", PodPhase::kFailed, PodEndReason::kPreempted, -1},
      {"preempted by the scheduler", Ended("Failed", 143, "Error", disrupted),
       kDeletion, PodPhase::kFailed, PodEndReason::kPreempted, 143},
      {"node shut down", R"({"phase": "Failed", "reason": "NodeShutdown"})", "",
       PodPhase::kFailed, PodEndReason::kEvicted, -1},
      {"turned down by the node",
       R"({"phase": "Failed", "reason": "OutOfcpu", "message":
        "Pod Node didn't have enough resource: cpu"})",
       "", PodPhase::kFailed, PodEndReason::kEvicted, -1},
      {"its own deadline",
       R"({"phase": "Failed", "reason": "DeadlineExceeded"})", "",
       PodPhase::kFailed, PodEndReason::kError, -1},
      {"deleted by somebody, SIGTERM", Ended("Failed", 143, "Error"), kDeletion,
       PodPhase::kDeleted, PodEndReason::kDeleted, 143},
      {"deleted by somebody, SIGKILL", Ended("Failed", 137, "Error"), kDeletion,
       PodPhase::kDeleted, PodEndReason::kDeleted, 137},
      {"deleted by somebody, left cleanly", Ended("Succeeded", 0, "Completed"),
       kDeletion, PodPhase::kDeleted, PodEndReason::kDeleted, 0},
      {"failed, then deleted", Ended("Failed", 3, "Error"), kDeletion,
       PodPhase::kFailed, PodEndReason::kError, 3},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const PodEvent event = Describe(c.status, c.metadata);
    EXPECT_EQ(PodPhaseName(event.phase), PodPhaseName(c.phase));
    EXPECT_EQ(PodEndReasonName(event.reason), PodEndReasonName(c.reason));
    EXPECT_EQ(event.exit_code, c.exit_code);
    EXPECT_EQ(event.terminating, !c.metadata.empty());
    EXPECT_TRUE(!event.refused || event.reason == PodEndReason::kEvicted);
  }
  EXPECT_TRUE(
      Describe(R"({"phase": "Failed", "reason": "UnexpectedAdmissionError"})")
          .refused);
  EXPECT_FALSE(Describe(Ended("Failed", 143, "Error"), kDeletion).refused);
}

TEST(DescribePodTest, WordsOfTheEnd) {
  EXPECT_EQ(DescribePodEnd(Describe(Ended("Failed", 3, "Error"))),
            "exit code 3: last words");
  EXPECT_EQ(DescribePodEnd(Describe(Ended("Failed", 137, "OOMKilled"))),
            "OOMKilled, exit code 137: last words");
  EXPECT_THAT(DescribePodEnd(Describe(
                  R"({"phase": "Failed", "reason": "Evicted", "message":
                  "The node was low on resource: memory."})")),
              HasSubstr("low on resource: memory"));
  const PodEvent loud = Describe(
      R"({"phase": "Failed", "containerStatuses": [{"name": "worker", "state":
      {"terminated": {"exitCode": 1, "message": ")" +
      std::string(5000, 'x') + R"("}}}]})");
  EXPECT_LT(loud.message.size(), 400u);
}

TEST(DescribePodTest, MainContainerCounts) {
  const PodEvent event = Describe(
      R"({"phase": "Failed", "containerStatuses": [
        {"name": "helper", "state": {"terminated": {"exitCode": 9}}},
        {"name": "worker", "state": {"terminated": {"exitCode": 4}}}]})");
  EXPECT_EQ(event.exit_code, 4);
  const PodEvent unnamed = Describe(
      R"({"phase": "Failed", "containerStatuses": [
        {"name": "a", "state": {"terminated": {"exitCode": 0}}},
        {"name": "b", "state": {"terminated": {"exitCode": 5}}}]})");
  EXPECT_EQ(unnamed.exit_code, 5);
}

// Word for word what a cluster of version 1.20 said.
TEST(DescribePodTest, RealStates) {
  PodEvent event = Describe(
      R"({"conditions": [{"lastProbeTime": null, "lastTransitionTime": "2026-11-16T09:04:41Z", "status": "True", "type": "Initialized"}, {"lastProbeTime": null, "lastTransitionTime": "2026-11-16T09:04:41Z", "message": "containers with unready status: [worker]", "reason": "ContainersNotReady", "status": "False", "type": "Ready"}, {"lastProbeTime": null, "lastTransitionTime": "2026-11-16T09:04:41Z", "status": "True", "type": "PodScheduled"}], "containerStatuses": [{"containerID": "containerd://e8f3", "image": "debian:bookworm", "imageID": "debian@sha256:58c1", "lastState": {}, "name": "worker", "ready": false, "restartCount": 0, "started": false, "state": {"terminated": {"containerID": "containerd://e8f3", "exitCode": 137, "finishedAt": "2026-11-16T09:04:42Z", "reason": "OOMKilled", "startedAt": "2026-11-16T09:04:42Z"}}}], "phase": "Failed", "qosClass": "Burstable", "startTime": "2026-11-16T09:04:41Z"})");
  EXPECT_EQ(DescribePodEnd(event), "OOMKilled, exit code 137");
  EXPECT_EQ(event.phase, PodPhase::kFailed);

  // kubectl delete pod: the kubelet has lost the container before its end.
  event = Describe(
      R"({"conditions": [{"lastProbeTime": null, "lastTransitionTime": "2026-11-16T09:04:52Z", "message": "containers with unready status: [worker]", "reason": "ContainersNotReady", "status": "False", "type": "Ready"}, {"lastProbeTime": null, "lastTransitionTime": "2026-11-16T09:04:44Z", "status": "True", "type": "PodScheduled"}], "containerStatuses": [{"image": "debian:bookworm", "imageID": "", "lastState": {"terminated": {"exitCode": 137, "finishedAt": null, "message": "The container could not be located when the pod was deleted.  The container used to be Running", "reason": "ContainerStatusUnknown", "startedAt": null}}, "name": "worker", "ready": false, "restartCount": 0, "started": false, "state": {"waiting": {"reason": "ContainerCreating"}}}], "phase": "Failed", "qosClass": "BestEffort", "startTime": "2026-11-16T09:04:44Z"})",
      kDeletion);
  EXPECT_EQ(event.phase, PodPhase::kDeleted);
  EXPECT_EQ(DescribePodEnd(event), "Deleted");

  event = Describe(
      R"({"message": "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ", "phase": "Failed", "reason": "Evicted", "startTime": "2026-11-16T09:04:44Z"})");
  EXPECT_EQ(event.phase, PodPhase::kFailed);
  EXPECT_EQ(DescribePodEnd(event),
            "Evicted: Pod ephemeral local storage usage exceeds the total "
            "limit of containers 10Mi.");

  event = Describe(
      R"({"conditions": [{"lastProbeTime": null, "lastTransitionTime": "2026-11-16T09:04:43Z", "status": "True", "type": "PodScheduled"}], "containerStatuses": [{"image": "host:1/x/no-such-image:1", "imageID": "", "lastState": {}, "name": "worker", "ready": false, "restartCount": 0, "started": false, "state": {"waiting": {"message": "rpc error: code = Unknown desc = failed to pull and unpack image \"host:1/x/no-such-image:1\": failed to resolve reference \"host:1/x/no-such-image:1\": failed to do request: Head \"http://host:1/v2/x/no-such-image/manifests/1\": dial tcp 10.0.0.1:1: connect: connection refused", "reason": "ErrImagePull"}}}], "phase": "Pending", "qosClass": "BestEffort", "startTime": "2026-11-16T09:04:43Z"})");
  EXPECT_THAT(event.message, StartsWith("ErrImagePull: rpc error"));
}

TEST(DescribePodTest, GonePods) {
  const auto gone = [](const std::string& status) {
    return DescribeGonePod(
        Parse(R"({"metadata": {"name": "p"}, "status": )" + status + "}"));
  };
  PodEvent event = gone(R"({"phase": "Running"})");
  EXPECT_EQ(event.phase, PodPhase::kDeleted);
  EXPECT_EQ(event.reason, PodEndReason::kDeleted);
  EXPECT_EQ(event.exit_code, -1);
  event = gone(Ended("Running", 143, "Error"));
  EXPECT_EQ(event.phase, PodPhase::kDeleted);
  EXPECT_EQ(event.exit_code, 143);
  event = gone(
      R"({"phase": "Running", "conditions": [{"type": "DisruptionTarget",
          "status": "True", "reason": "PreemptionByScheduler"}]})");
  EXPECT_EQ(event.phase, PodPhase::kDeleted);
  EXPECT_EQ(event.reason, PodEndReason::kPreempted);
  // How it had ended is more than that it is gone.
  event = gone(Ended("Failed", 3, "Error"));
  EXPECT_EQ(event.phase, PodPhase::kFailed);
}

TEST(DescribePodTest, NonsenseIsPending) {
  for (
      const char* text :
      {"null", "7", "[]", "{}", R"({"status": []})",
       R"({"metadata": 7, "status": {"phase": 3, "conditions": [1, {}]}})",
       R"({"status": {"phase": "Pending", "containerStatuses": [7, {"state": 3}]}})"}) {
    EXPECT_EQ(DescribePod(Parse(text)).phase, PodPhase::kPending) << text;
  }
  EXPECT_EQ(
      DescribePod(Parse(
                      R"({"status": {"phase": "Failed", "containerStatuses": [7,
                {"state": 3}, {"state": {"terminated": 1}}]}})"))
          .phase,
      PodPhase::kFailed);
  EXPECT_THAT(DescribePod(Parse(R"({"status": {"phase": "Unknown", "reason":
              "NodeLost", "message": "Node x is unresponsive"}})"))
                  .message,
              StartsWith("NodeLost"));
}

}  // namespace
}  // namespace elasticdl::master
