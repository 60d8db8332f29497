// The contract of pod backends for processes of this machine and for a real
// cluster (tests/kube/real_cluster.h says which).
#include "master/pod_backend_contract.h"

#include <signal.h>

#include <set>

#include "kube/real_cluster.h"
#include "kube_pod_backend.h"
#include "local_pod_backend.h"
#include "pod_manager.h"

namespace elasticdl::master {
namespace {

using kube::Json;
using kube::test::RealCluster;
using ::testing::HasSubstr;

class LocalPlace : public PodPlace {
 public:
  std::string WhyNot() const override { return ""; }
  absl::StatusOr<std::unique_ptr<PodBackend>> Start(
      PodEventSink sink) override {
    LocalPodBackend::Options options;
    options.environment = {"PATH=/usr/bin:/bin"};
    return LocalPodBackend::Start(std::move(options), std::move(sink));
  }
  absl::Status TakeAway(const PodEvent& pod) override {
    return kill(pod.pid, SIGKILL) == 0 ? absl::OkStatus()
                                       : absl::InternalError("kill");
  }
};

class ClusterPlace : public PodPlace {
 public:
  ClusterPlace() : cluster(RealCluster::Find(why_not_)) {}

  std::string WhyNot() const override {
    if (cluster == nullptr) return absl::StrCat("no cluster: ", why_not_);
    return cluster->image().empty() ? "no ELASTICDL_TEST_IMAGE" : "";
  }
  absl::StatusOr<std::unique_ptr<PodBackend>> Start(
      PodEventSink sink) override {
    KubePodBackend::Options options;
    relay = cluster->NewRelay();
    options.client = cluster->NewClient(*relay);
    options.job.name = "contract";
    options.job.master_address = "127.0.0.1:1";
    options.worker_template =
        pod_template.is_null() ? Template() : pod_template;
    return KubePodBackend::Start(std::move(options), std::move(sink));
  }
  absl::Status TakeAway(const PodEvent& pod) override {
    return cluster->client().Delete(kube::Pods(), pod.name, absl::Seconds(1));
  }
  // The script of a pod comes by its environment, so that one template does.
  Json Template() const {
    return {{"apiVersion", "v1"},
            {"kind", "Pod"},
            {"spec",
             {{"restartPolicy", "Never"},
              {"terminationGracePeriodSeconds", 30},
              {"automountServiceAccountToken", false},
              {"containers",
               {{{"name", "worker"},
                 {"image", cluster->image()},
                 {"command", {"sh", "-c", "eval \"$SCRIPT\"", "sh"}}}}}}}};
  }

 private:
  std::string why_not_;

 public:
  const std::unique_ptr<RealCluster> cluster;
  std::unique_ptr<kube::test::Relay> relay;
  // Instead of Template().
  Json pod_template;
};

template <typename Place>
std::unique_ptr<PodPlace> Make() {
  return std::make_unique<Place>();
}

INSTANTIATE_TEST_SUITE_P(Local, PodBackendContract,
                         ::testing::Values(&Make<LocalPlace>));
INSTANTIATE_TEST_SUITE_P(Cluster, PodBackendContract,
                         ::testing::Values(&Make<ClusterPlace>));

// What only a cluster does.
class ClusterPods : public PodBackendContract {
 protected:
  using PodBackendContract::Start;
  void Start(const Json& pod_template) {
    place().pod_template = pod_template;
    Start();
  }
  ClusterPlace& place() { return static_cast<ClusterPlace&>(*place_); }
  RealCluster& cluster() { return *place().cluster; }
  Json Template() { return place().Template(); }
  // The next pending event with a message.
  std::string NextMessage(const std::string& part) {
    while (auto event = events_.Pop(kPodPatience)) {
      LogInfo(event->name, " ", PodPhaseName(event->phase), " ",
              event->message);
      EXPECT_EQ(event->phase, PodPhase::kPending);
      if (event->message.find(part) != std::string::npos) {
        return event->message;
      }
    }
    return "no such message came";
  }
};

TEST_P(ClusterPods, OutOfMemoryIsTold) {
  Json pod = Template();
  pod["spec"]["containers"][0]["resources"] = {
      {"limits", {{"memory", "32Mi"}}}};
  Start(pod);
  ASSERT_TRUE(Create(0, "exec tail /dev/zero").ok());
  const PodEvent end = Next(/*final=*/true);
  EXPECT_EQ(PodEndReasonName(end.reason),
            PodEndReasonName(PodEndReason::kOomKilled));
  EXPECT_TRUE(IsProcessFailure(end));
}

TEST_P(ClusterPods, UnschedulableSaysWhy) {
  Json pod = Template();
  pod["spec"]["containers"][0]["resources"] = {
      {"requests", {{"cpu", "100000"}}}};
  Start(pod);
  ASSERT_TRUE(Create(0, "exit 0").ok());
  EXPECT_THAT(NextMessage("nodes are available"), HasSubstr("cpu"));
  // It can go all the same.
  ASSERT_TRUE(backend_->Delete(Name(0), absl::Seconds(1)).ok());
  EXPECT_EQ(Next(/*final=*/true).phase, PodPhase::kDeleted);
}

TEST_P(ClusterPods, ImageThatCannotBePulledSaysWhy) {
  Json pod = Template();
  pod["spec"]["containers"][0]["image"] =
      "127.0.0.1:1/elasticdl/no-such-image:1";
  Start(pod);
  ASSERT_TRUE(Create(0, "exit 0").ok());
  EXPECT_THAT(NextMessage("Image"), HasSubstr("no-such-image"));
}

TEST_P(ClusterPods, BadTemplateIsACreateError) {
  Json pod = Template();
  pod["spec"]["containers"][0]["resources"] = {{"limits", {{"cpu", "many"}}}};
  Start(pod);
  ASSERT_TRUE(Create(0, "exit 0").ok());
  const auto event = events_.Pop(kPodPatience);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->create_error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(event->create_error.message()), HasSubstr("many"));
}

TEST_P(ClusterPods, ApiServerAwayAndBack) {
  Start();
  ASSERT_TRUE(CreatePolite(0).ok());
  ASSERT_TRUE(CreatePolite(1).ok());
  Next(/*final=*/false);
  Next(/*final=*/false);
  place().relay->Cut();
  // A creation fails for now, a deletion is tried until it is heard, and what
  // others do meanwhile is not lost.
  ASSERT_TRUE(CreatePolite(2).ok());
  while (auto event = events_.Pop(kPodPatience)) {
    if (event->create_error.ok()) continue;
    EXPECT_EQ(event->name, Name(2));
    EXPECT_EQ(event->create_error.code(), absl::StatusCode::kUnavailable);
    break;
  }
  ASSERT_TRUE(backend_->Delete(Name(0), absl::Seconds(5)).ok());
  ASSERT_TRUE(cluster()
                  .client()
                  .Delete(kube::Pods(), Name(1), absl::ZeroDuration())
                  .ok());
  place().relay->Mend();
  std::set<std::string> ended;
  ended.insert(Next(/*final=*/true).name);
  ended.insert(Next(/*final=*/true).name);
  EXPECT_THAT(ended, ::testing::ElementsAre(Name(0), Name(1)));
}

TEST_P(ClusterPods, AnotherMasterFindsThem) {
  Start();
  ASSERT_TRUE(CreatePolite(7).ok());
  Next(/*final=*/false);
  KubePodBackend::Options options;
  options.client = cluster().NewClient();
  options.job.name = "contract";
  options.worker_template = Template();
  Queue<PodEvent> events(100);
  auto second = KubePodBackend::Start(
      std::move(options), [&](const PodEvent& event) { events.Push(event); });
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_EQ((*second)->existing().size(), 1u);
  const PodEvent found = (*second)->existing()[0];
  EXPECT_EQ(found.id, 7);
  EXPECT_EQ(found.phase, PodPhase::kRunning);
  EXPECT_EQ((*events.Pop(kPodPatience)).phase, PodPhase::kRunning);
  ASSERT_TRUE((*second)->Delete(Name(7), absl::Seconds(5)).ok());
  // Both hear of it.
  EXPECT_EQ(Next(/*final=*/true).phase, PodPhase::kDeleted);
}

INSTANTIATE_TEST_SUITE_P(Cluster, ClusterPods,
                         ::testing::Values(&Make<ClusterPlace>));

}  // namespace
}  // namespace elasticdl::master
