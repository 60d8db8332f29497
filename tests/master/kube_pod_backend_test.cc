// KubePodBackend against a cluster in memory: what a real one does too rarely
// to test.
#include "kube_pod_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/queue.h"
#include "master/fake_cluster.h"

namespace elasticdl::master {
namespace {

using kube::Json;
using test::FakeCluster;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr absl::Duration kPatience = absl::Seconds(20);

Json Template(const std::string& type = "worker",
              const std::string& image = "i") {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"spec", {{"containers", {{{"name", type}, {"image", image}}}}}}};
}

Json Running() { return {{"phase", "Running"}}; }

Json Exited(int code) {
  const Json end = {{"exitCode", code}};
  return {{"phase", code == 0 ? "Succeeded" : "Failed"},
          {"containerStatuses",
           {{{"name", "worker"}, {"state", {{"terminated", end}}}}}}};
}

std::string Name(int64_t id) { return PodName(PodType::kWorker, "j", id); }

PodSpec Spec(int64_t id) {
  PodSpec spec;
  spec.name = Name(id);
  spec.id = id;
  return spec;
}

KubeJob Job() {
  return {"j", "elasticdl-master-j", "master-uid", "10.0.0.1:1"};
}

class KubePodBackendTest : public ::testing::Test {
 protected:
  ~KubePodBackendTest() override {
    cluster_.SetSlowDeletion(false);
    cluster_.SetDown(false);
    cluster_.SetBlind(false);
  }

  void Start(absl::Duration call_timeout = kPatience) {
    KubePodBackend::Options options;
    kube::Client::Options client;
    client.timeout = call_timeout;
    options.client = std::make_unique<kube::Client>(cluster_.Connect(), client);
    options.job = Job();
    options.worker_template = Template();
    options.ps_template = ps_template_;
    options.retry_initial = absl::Milliseconds(2);
    options.retry_max = absl::Milliseconds(20);
    options.stop_timeout = stop_timeout_;
    auto backend = KubePodBackend::Start(
        std::move(options),
        [this](const PodEvent& event) { events_.Push(event); });
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }
  PodEvent Next() {
    auto event = events_.Pop(kPatience);
    EXPECT_TRUE(event.has_value()) << "no event came";
    return event.value_or(PodEvent());
  }
  // "0 Running", "1 Deleted exit code 143", "2 create error …".
  static std::string Show(const PodEvent& event) {
    const std::string id = event.name.substr(event.name.rfind('-') + 1);
    if (!event.create_error.ok()) {
      return absl::StrCat(id, " create error ",
                          absl::StatusCodeToString(event.create_error.code()));
    }
    std::string text = absl::StrCat(id, " ", PodPhaseName(event.phase));
    if (event.terminating && !IsFinal(event.phase))
      absl::StrAppend(&text, " terminating");
    if (event.exit_code >= 0) {
      absl::StrAppend(&text, " exit code ", event.exit_code);
    }
    return text;
  }
  std::string NextShown() { return Show(Next()); }
  // Created and known to run.
  void CreateRunning(int64_t id) {
    ASSERT_TRUE(backend_->Create(Spec(id)).ok());
    EXPECT_EQ(NextShown(), absl::StrCat(id, " Pending"));
    cluster_.SetStatus(Name(id), Running());
    EXPECT_EQ(NextShown(), absl::StrCat(id, " Running"));
  }

  Json ps_template_;
  absl::Duration stop_timeout_ = kPatience;
  FakeCluster cluster_;
  Queue<PodEvent> events_{1000};
  std::unique_ptr<KubePodBackend> backend_;
};

TEST_F(KubePodBackendTest, LifeOfAPod) {
  Start();
  CreateRunning(3);
  const Json pod = cluster_.Get(Name(3));
  EXPECT_TRUE(cluster::IsReplicaOf(Job(), pod));
  EXPECT_EQ(kube::TextAt(pod, "/metadata/labels/elasticdl-replica-index"), "3");
  // The same state again is no event.
  cluster_.SetStatus(Name(3), Running());
  cluster_.SetStatus(Name(3), Exited(3));
  EXPECT_EQ(NextShown(), "3 Failed exit code 3");
  // Finished pods stay; their removal is no second end.
  EXPECT_TRUE(cluster_.Has(Name(3)));
  cluster_.Remove(Name(3));
  CreateRunning(4);
  EXPECT_EQ(backend_->Create(Spec(4)).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(backend_->Delete(Name(3), kPatience).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(backend_->Delete("unheard-of", kPatience).code(),
            absl::StatusCode::kNotFound);
  // What ended and was removed is forgotten.
  CreateRunning(3);
}

TEST_F(KubePodBackendTest, ServersHaveTheirOwnTemplate) {
  ps_template_ = Template("ps", "server");
  Start();
  PodSpec spec;
  spec.name = PodName(PodType::kPs, "j", 1, 2);
  spec.type = PodType::kPs;
  spec.id = 1;
  ASSERT_TRUE(backend_->Create(spec).ok());
  EXPECT_EQ(Next().name, "elasticdl-ps-j-1-r2");
  const Json pod = cluster_.Get(spec.name);
  const Json& container = pod["spec"]["containers"][0];
  EXPECT_EQ(container["image"], "server");
  EXPECT_EQ(container["args"], Json({"--ps_id=1", "--master_addr=10.0.0.1:1"}));
  EXPECT_EQ(kube::TextAt(pod, "/metadata/labels/elasticdl-replica-type"), "ps");
  EXPECT_TRUE(cluster::IsReplicaOf(Job(), pod));
  // Started again in its pod: one life, with news.
  Json status = Running();
  status["containerStatuses"] = {
      {{"name", "ps"},
       {"restartCount", 1},
       {"state", {{"running", Json::object()}}},
       {"lastState", {{"terminated", {{"exitCode", 137}}}}}}};
  cluster_.SetStatus(spec.name, status);
  const PodEvent event = Next();
  EXPECT_EQ(event.type, PodType::kPs);
  EXPECT_EQ(event.phase, PodPhase::kRunning);
  EXPECT_EQ(event.restarts, 1);
}

TEST_F(KubePodBackendTest, DeleteByUsAndByOthers) {
  Start();
  CreateRunning(0);
  ASSERT_TRUE(backend_->Delete(Name(0), absl::Seconds(3)).ok());
  const PodEvent ours = Next();
  EXPECT_EQ(ours.phase, PodPhase::kDeleted);
  EXPECT_EQ(ours.reason, PodEndReason::kDeleted);
  CreateRunning(1);
  cluster_.Remove(Name(1));
  EXPECT_EQ(NextShown(), "1 Deleted");
  // What we delete ends as deleted, however it ends.
  cluster_.SetSlowDeletion(true);
  CreateRunning(2);
  ASSERT_TRUE(backend_->Delete(Name(2), absl::Seconds(3)).ok());
  EXPECT_EQ(NextShown(), "2 Running terminating");
  cluster_.SetStatus(Name(2), Exited(3));
  EXPECT_EQ(NextShown(), "2 Deleted exit code 3");
}

TEST_F(KubePodBackendTest, RefusedCreationIsAnEvent) {
  Start();
  cluster_.AnswerCreate(403, "pods \"x\" is forbidden: exceeded quota: q");
  ASSERT_TRUE(backend_->Create(Spec(0)).ok());
  PodEvent event = Next();
  EXPECT_EQ(event.name, Name(0));
  EXPECT_EQ(event.create_error.code(), absl::StatusCode::kResourceExhausted);
  cluster_.AnswerCreate(422, "spec.volumes: Required value");
  ASSERT_TRUE(backend_->Create(Spec(0)).ok());
  event = Next();
  EXPECT_EQ(event.create_error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(event.create_error.message()),
              HasSubstr("spec.volumes"));
  // The name is free for the next try.
  cluster_.AnswerCreate(0, "");
  CreateRunning(0);
  PodSpec ps = Spec(1);
  ps.type = PodType::kPs;
  EXPECT_EQ(backend_->Create(ps).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(KubePodBackendTest, LostAnswerOfACreation) {
  Start();
  cluster_.LoseNextCreateAnswer();
  ASSERT_TRUE(backend_->Create(Spec(0)).ok());
  // The watch shows the pod; whether the error is told before is a race.
  std::string shown = NextShown();
  if (shown == "0 create error UNAVAILABLE") shown = NextShown();
  EXPECT_EQ(shown, "0 Pending");
  EXPECT_EQ(backend_->Create(Spec(0)).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(KubePodBackendTest, ServerAwayAndBack) {
  Start();
  CreateRunning(0);
  CreateRunning(1);
  CreateRunning(2);
  cluster_.SetDown(true);
  ASSERT_TRUE(backend_->Create(Spec(3)).ok());
  EXPECT_EQ(NextShown(), "3 create error UNAVAILABLE");
  // Deletions are tried until they are heard.
  ASSERT_TRUE(backend_->Delete(Name(2), absl::Seconds(3)).ok());
  // Meanwhile one goes and one ends.
  cluster_.Remove(Name(0));
  cluster_.SetStatus(Name(1), Exited(0));
  cluster_.SetDown(false);
  std::set<std::string> seen = {NextShown(), NextShown(), NextShown()};
  EXPECT_THAT(seen, UnorderedElementsAre("0 Deleted", "1 Succeeded exit code 0",
                                         "2 Deleted"));
}

// Made and gone while nobody watched: no list and no watch ever shows it.
TEST_F(KubePodBackendTest, PodThatNobodySawIsMissed) {
  Start();
  CreateRunning(0);
  cluster_.SetBlind(true);
  ASSERT_TRUE(backend_->Create(Spec(1)).ok());
  EXPECT_EQ(NextShown(), "1 Pending");
  cluster_.Remove(Name(1));
  cluster_.SetBlind(false);
  EXPECT_EQ(NextShown(), "1 Deleted");
}

TEST_F(KubePodBackendTest, PodsOfBeforeAreReported) {
  const auto put = [this](int64_t id, const Json& status) {
    Json pod = *MakePod(Template(), Spec(id), Job());
    pod["status"] = status;
    cluster_.Put(pod);
  };
  put(4, Running());
  put(5, Exited(1));
  KubeJob other = Job();
  other.owner_uid = "earlier-master";
  cluster_.Put(*MakePod(Template(), Spec(9), other));
  Start();
  std::vector<std::string> shown;
  for (const PodEvent& event : backend_->existing()) {
    shown.push_back(absl::StrCat(event.id, ": ", Show(event)));
  }
  EXPECT_THAT(shown,
              UnorderedElementsAre("4: 4 Running", "5: 5 Failed exit code 1"));
  // Those that live are told again, as any pod.
  EXPECT_EQ(NextShown(), "4 Running");
  cluster_.SetStatus(Name(4), Exited(0));
  EXPECT_EQ(NextShown(), "4 Succeeded exit code 0");
  // The name of somebody else's pod is taken for now, not for good.
  ASSERT_TRUE(backend_->Create(Spec(9)).ok());
  const PodEvent taken = Next();
  EXPECT_EQ(taken.create_error.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.create_error.message()),
              HasSubstr("earlier job"));
  cluster_.Remove(Name(9));
  CreateRunning(9);
}

TEST_F(KubePodBackendTest, StopDeletesWhatLives) {
  Start();
  CreateRunning(0);
  CreateRunning(1);
  cluster_.SetStatus(Name(1), Exited(0));
  EXPECT_EQ(NextShown(), "1 Succeeded exit code 0");
  backend_->Stop();
  EXPECT_FALSE(cluster_.Has(Name(0)));
  EXPECT_TRUE(cluster_.Has(Name(1)));
  EXPECT_EQ(NextShown(), "0 Deleted");
  EXPECT_EQ(events_.size(), 0u);
  EXPECT_EQ(backend_->Create(Spec(2)).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(backend_->Delete(Name(0), kPatience).code(),
            absl::StatusCode::kFailedPrecondition);
  backend_->Stop();
}

TEST_F(KubePodBackendTest, StopCatchesCreationsUnderWay) {
  Start();
  for (int64_t id = 0; id < 50; ++id) {
    ASSERT_TRUE(backend_->Create(Spec(id)).ok());
  }
  backend_->Stop();
  for (int64_t id = 0; id < 50; ++id) EXPECT_FALSE(cluster_.Has(Name(id)));
}

TEST_F(KubePodBackendTest, StopDoesNotWaitForEver) {
  stop_timeout_ = absl::Milliseconds(100);
  Start(absl::Hours(1));
  CreateRunning(0);
  // Neither for pods that do not end …
  cluster_.SetSlowDeletion(true);
  // … nor for a server that says nothing.
  cluster_.SetSilent(true);
  const absl::Time before = Clock::Real().Now();
  backend_->Stop();
  EXPECT_LT(Clock::Real().Now() - before, kPatience);
}

TEST_F(KubePodBackendTest, StartFailsWithTheServersWords) {
  cluster_.SetDown(true);
  KubePodBackend::Options options;
  options.client = std::make_unique<kube::Client>(cluster_.Connect(),
                                                  kube::Client::Options());
  options.job = Job();
  options.worker_template = Template();
  options.start_timeout = absl::Milliseconds(100);
  const auto none = KubePodBackend::Start(std::move(options), nullptr);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kUnavailable);
  KubePodBackend::Options bad;
  bad.worker_template = Json::object();
  EXPECT_EQ(KubePodBackend::Start(std::move(bad), nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace elasticdl::master
