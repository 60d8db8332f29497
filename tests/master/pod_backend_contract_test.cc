// One contract for all pod backends: processes of this machine, and a real
// cluster (tests/kube/real_cluster.h says which).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/queue.h"
#include "kube/real_cluster.h"
#include "kube_pod_backend.h"
#include "local_pod_backend.h"
#include "pod_manager.h"

namespace elasticdl::master {
namespace {

using kube::Json;
using kube::test::RealCluster;
using ::testing::HasSubstr;

// Deleting a pod takes seconds, pulling an image may take a minute.
constexpr absl::Duration kPatience = absl::Seconds(120);

enum class Backend { kLocal, kCluster };

class PodBackendContract : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (GetParam() == Backend::kLocal) return;
    std::string why;
    cluster_ = RealCluster::Find(why);
    if (cluster_ == nullptr) GTEST_SKIP() << "no cluster: " << why;
    if (cluster_->image().empty()) GTEST_SKIP() << "no ELASTICDL_TEST_IMAGE";
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
                 {"image", cluster_->image()},
                 {"command", {"sh", "-c", "eval \"$SCRIPT\"", "sh"}}}}}}}};
  }

  void Start(const Json& pod_template = Json()) {
    const auto sink = [this](const PodEvent& event) { events_.Push(event); };
    if (GetParam() == Backend::kLocal) {
      LocalPodBackend::Options options;
      options.environment = {"PATH=/usr/bin:/bin"};
      backend_ = *LocalPodBackend::Start(std::move(options), sink);
      return;
    }
    KubePodBackend::Options options;
    relay_ = cluster_->NewRelay();
    options.client = cluster_->NewClient(*relay_);
    options.job.name = "contract";
    options.job.master_address = "127.0.0.1:1";
    options.worker_template =
        pod_template.is_null() ? Template() : pod_template;
    auto backend = KubePodBackend::Start(std::move(options), sink);
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }

  static std::string Name(int64_t id) {
    return PodName(PodType::kWorker, "contract", id);
  }
  absl::Status Create(int64_t id, const std::string& script) {
    PodSpec spec;
    spec.name = Name(id);
    spec.id = id;
    spec.argv = {"sh", "-c", "eval \"$SCRIPT\""};
    spec.env = {{"SCRIPT", script}};
    return backend_->Create(spec);
  }
  // A pod that leaves cleanly when it is told to.
  absl::Status CreatePolite(int64_t id) {
    return Create(id, "trap 'exit 0' TERM; sleep 1000 & wait");
  }

  // The next event that a reader waits for: one that runs (`final` false) or
  // one that is over. What comes before goes to the log.
  PodEvent Next(bool final) {
    while (auto event = events_.Pop(kPatience)) {
      LogInfo(event->name, " ", PodPhaseName(event->phase),
              event->terminating ? " terminating " : " ",
              IsFinal(event->phase) ? DescribePodEnd(*event) : event->message);
      EXPECT_TRUE(event->create_error.ok()) << event->create_error;
      if (IsFinal(event->phase) == final &&
          event->phase != PodPhase::kPending) {
        return *event;
      }
    }
    ADD_FAILURE() << "no such event came";
    return PodEvent();
  }
  // The next pending event with a message.
  std::string NextMessage(const std::string& part) {
    while (auto event = events_.Pop(kPatience)) {
      LogInfo(event->name, " ", PodPhaseName(event->phase), " ",
              event->message);
      EXPECT_EQ(event->phase, PodPhase::kPending);
      if (event->message.find(part) != std::string::npos) {
        return event->message;
      }
    }
    return "no such message came";
  }
  void TakeAway(const PodEvent& pod) {
    if (GetParam() == Backend::kLocal) {
      ASSERT_EQ(kill(pod.pid, SIGKILL), 0);
    } else {
      ASSERT_TRUE(cluster_->client()
                      .Delete(kube::Pods(), pod.name, absl::Seconds(1))
                      .ok());
    }
  }

  std::unique_ptr<RealCluster> cluster_;
  std::unique_ptr<kube::test::Relay> relay_;
  Queue<PodEvent> events_{10000};
  std::unique_ptr<PodBackend> backend_;
};

TEST_P(PodBackendContract, RunsAndSucceeds) {
  Start();
  ASSERT_TRUE(Create(0, "exec sleep 1").ok());
  const PodEvent running = Next(/*final=*/false);
  EXPECT_EQ(running.name, Name(0));
  EXPECT_EQ(running.phase, PodPhase::kRunning);
  const PodEvent end = Next(/*final=*/true);
  EXPECT_EQ(end.phase, PodPhase::kSucceeded);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(end.reason, PodEndReason::kNone);
}

TEST_P(PodBackendContract, ExitCodeIsReported) {
  Start();
  ASSERT_TRUE(Create(0, "exit 3").ok());
  const PodEvent end = Next(/*final=*/true);
  EXPECT_EQ(end.phase, PodPhase::kFailed);
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_EQ(end.reason, PodEndReason::kError);
  EXPECT_TRUE(IsProcessFailure(end));
}

TEST_P(PodBackendContract, DeleteByUs) {
  Start();
  ASSERT_TRUE(CreatePolite(0).ok());
  Next(/*final=*/false);
  ASSERT_TRUE(backend_->Delete(Name(0), absl::Seconds(20)).ok());
  const PodEvent end = Next(/*final=*/true);
  EXPECT_EQ(end.phase, PodPhase::kDeleted);
  EXPECT_EQ(end.reason, PodEndReason::kDeleted);
  EXPECT_EQ(backend_->Delete(Name(0), absl::Seconds(1)).code(),
            absl::StatusCode::kNotFound);
}

TEST_P(PodBackendContract, DeleteOfOneThatDoesNotListen) {
  Start();
  ASSERT_TRUE(Create(0, "trap '' TERM; sleep 1000 & wait; wait").ok());
  Next(/*final=*/false);
  const absl::Time before = Clock::Real().Now();
  ASSERT_TRUE(backend_->Delete(Name(0), absl::Seconds(1)).ok());
  EXPECT_EQ(Next(/*final=*/true).phase, PodPhase::kDeleted);
  EXPECT_LT(Clock::Real().Now() - before, absl::Seconds(30));
}

TEST_P(PodBackendContract, TakenAwayBySomebodyElseIsNoFailure) {
  Start();
  ASSERT_TRUE(CreatePolite(0).ok());
  TakeAway(Next(/*final=*/false));
  const PodEvent end = Next(/*final=*/true);
  EXPECT_FALSE(IsProcessFailure(end)) << DescribePodEnd(end);
}

TEST_P(PodBackendContract, NameThatIsTaken) {
  Start();
  ASSERT_TRUE(CreatePolite(0).ok());
  Next(/*final=*/false);
  EXPECT_EQ(CreatePolite(0).code(), absl::StatusCode::kAlreadyExists);
}

TEST_P(PodBackendContract, StopEndsAll) {
  Start();
  ASSERT_TRUE(CreatePolite(0).ok());
  ASSERT_TRUE(CreatePolite(1).ok());
  Next(/*final=*/false);
  Next(/*final=*/false);
  backend_->Stop();
  EXPECT_EQ(Next(/*final=*/true).phase, PodPhase::kDeleted);
  EXPECT_EQ(Next(/*final=*/true).phase, PodPhase::kDeleted);
  EXPECT_EQ(events_.size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Backends, PodBackendContract,
                         ::testing::Values(Backend::kLocal, Backend::kCluster),
                         [](const auto& info) {
                           return info.param == Backend::kLocal ? "Local"
                                                                : "Cluster";
                         });

// What only a cluster does.
class ClusterPods : public PodBackendContract {};

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
  const auto event = events_.Pop(kPatience);
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
  relay_->Cut();
  // A creation fails for now, a deletion is tried until it is heard, and what
  // others do meanwhile is not lost.
  ASSERT_TRUE(CreatePolite(2).ok());
  while (auto event = events_.Pop(kPatience)) {
    if (event->create_error.ok()) continue;
    EXPECT_EQ(event->name, Name(2));
    EXPECT_EQ(event->create_error.code(), absl::StatusCode::kUnavailable);
    break;
  }
  ASSERT_TRUE(backend_->Delete(Name(0), absl::Seconds(5)).ok());
  ASSERT_TRUE(cluster_->client()
                  .Delete(kube::Pods(), Name(1), absl::ZeroDuration())
                  .ok());
  relay_->Mend();
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
  options.client = cluster_->NewClient();
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
  EXPECT_EQ((*events.Pop(kPatience)).phase, PodPhase::kRunning);
  ASSERT_TRUE((*second)->Delete(Name(7), absl::Seconds(5)).ok());
  // Both hear of it.
  EXPECT_EQ(Next(/*final=*/true).phase, PodPhase::kDeleted);
}

INSTANTIATE_TEST_SUITE_P(Backends, ClusterPods,
                         ::testing::Values(Backend::kCluster),
                         [](const auto&) { return "Cluster"; });

}  // namespace
}  // namespace elasticdl::master
