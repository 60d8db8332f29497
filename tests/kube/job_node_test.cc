// Jobs on a real cluster that need its node for themselves: the scheduler takes
// a worker away, the node is drained, the API server does not answer. Each must
// go on and train every record of every epoch once. See job_fixture.h for what
// they need, and for the last one
//   ELASTICDL_TEST_APISERVER_PID    the API server, a process of this machine
//   ELASTICDL_TEST_OUTAGE_SECONDS   how long it is stopped (default 60)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kube/job_fixture.h"

namespace elasticdl::kube::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Tens of epochs on a small machine.
constexpr absl::Duration kWholeJob = absl::Minutes(5);

// Stops a process for a while.
class Pause {
 public:
  explicit Pause(pid_t pid) : pid_(pid) {
    EXPECT_EQ(kill(pid_, SIGSTOP), 0) << "process " << pid_;
  }
  ~Pause() { End(); }
  void End() { kill(pid_, SIGCONT); }

 private:
  const pid_t pid_;
};

class JobNodeTest : public KubeJobTest {
 protected:
  void SetUp() override {
    KubeJobTest::SetUp();
    if (!IsSkipped() && !HasFailure()) GrantRights();
  }

  // Of this name in this test; its whole name.
  std::string MakePriority(const std::string& name, int value) {
    const Resource classes = {"scheduling.k8s.io", "v1", "priorityclasses",
                              false};
    std::string whole = absl::StrCat(space(), "-", name);
    const auto made =
        client().Create(classes, {{"apiVersion", "scheduling.k8s.io/v1"},
                                  {"kind", "PriorityClass"},
                                  {"metadata", {{"name", whole}}},
                                  {"value", value}});
    EXPECT_TRUE(made.ok()) << made.status();
    AtEnd([this, classes, whole] {
      client().Delete(classes, whole).IgnoreError();
    });
    return whole;
  }
  // Whether new pods may come to the node.
  absl::Status Cordon(const std::string& node, bool closed) {
    return client()
        .Patch({"", "v1", "nodes", false}, node,
               {{"spec", {{"unschedulable", closed}}}})
        .status();
  }
  // As `kubectl drain` does; old clusters know the older version only.
  absl::Status Evict(const std::string& pod) {
    absl::Status status;
    for (const char* version : {"policy/v1", "policy/v1beta1"}) {
      Request request;
      request.method = "POST";
      request.path = {"api",  "v1", "namespaces", space(),
                      "pods", pod,  "eviction"};
      request.body = Json({{"apiVersion", version},
                           {"kind", "Eviction"},
                           {"metadata", {{"name", pod}}}})
                         .dump();
      const auto answer =
          client().transport().Call(request, kPatience, nullptr);
      status = answer.ok() ? ToStatus(request, *answer) : answer.status();
      if (status.ok()) break;
    }
    return status;
  }
};

TEST_F(JobNodeTest, PreemptedWorkerComesBack) {
  const Json node = Node();
  if (node.is_null()) GTEST_SKIP() << "may not list nodes, or all are tainted";
  // Two masters and two workers fit, three workers do not.
  constexpr int64_t kMaster = 50;
  const int64_t free = FreeMillicpu(node) - 2 * kMaster;
  const int64_t worker = free * 45 / 100;
  if (worker < 200) {
    GTEST_SKIP() << "only " << free << "m of CPU are free on node "
                 << TextAt(node, "/metadata/name");
  }
  // Below 0: pods of others, who have no priority, are never in danger.
  const std::string high = MakePriority("high", -10);
  const std::string low = MakePriority("low", -1000);
  const Flags common = {
      absl::StrCat("--worker_resource_request=cpu=", worker, "m,memory=256Mi"),
      absl::StrCat("--master_resource_request=cpu=", kMaster, "m,memory=128Mi"),
      "--master_pod_priority=" + high,
      "--cluster_spec_json=" + OnNode(node).dump()};
  Flags flags = common;
  flags.insert(flags.end(), {"--num_epochs=12", "--num_workers=2", kPaced,
                             "--worker_pod_priority=" + low});
  const auto first = Train("low-prio-job", flags);
  ASSERT_FALSE(first->WaitForWorld(2).is_null());

  flags = common;
  flags.insert(flags.end(), {"--num_epochs=2", "--num_workers=1",
                             "--worker_pod_priority=" + high});
  const auto second = Train("high-prio-job", flags);
  const Json alone = first->WaitForWorld(1);
  ASSERT_FALSE(alone.is_null()) << second->Output();
  ASSERT_FALSE(second->WaitForWorld(1).is_null());
  ASSERT_EQ(second->Wait(kWholeJob), 0) << second->Output();
  const Json together = first->WaitForWorld(2);
  ASSERT_FALSE(together.is_null());
  ASSERT_EQ(first->Wait(kWholeJob), 0) << first->Output();
  printf(
      "measured: preemption: low-prio-job trained with one worker for %.1f s\n",
      TimeOf(together) - TimeOf(alone));
  EXPECT_TRUE(LedgerIsExact(first->audit(), 12));
  EXPECT_TRUE(LedgerIsExact(second->audit(), 2));
  EXPECT_THAT(Log(first->Worker(2)), Not(HasSubstr("restored ")));
}

TEST_F(JobNodeTest, DrainedNodeGivesTheWorkersBack) {
  const Json node = Node();
  if (node.is_null()) GTEST_SKIP() << "may not list nodes, or all are tainted";
  const std::string name = TextAt(node, "/metadata/name");
  // The master stays, as a budget of disruptions would see to it.
  const auto job =
      Train("drained", {"--num_epochs=4", "--num_workers=2", kPaced,
                        "--checkpoint_dir=/out/c", "--checkpoint_steps=100000",
                        "--cluster_spec_json=" + OnNode(node).dump()});
  const Json before = job->WaitForWorld(2);
  ASSERT_FALSE(before.is_null());
  ASSERT_FALSE(job->WaitForFirstStep(before).is_null());
  const absl::Status closed = Cordon(name, true);
  if (absl::IsPermissionDenied(closed)) GTEST_SKIP() << closed;
  ASSERT_TRUE(closed.ok()) << closed;
  AtEnd([this, name] { Cordon(name, false).IgnoreError(); });
  for (int id : {0, 1}) {
    const absl::Status evicted = Evict(job->Worker(id));
    ASSERT_TRUE(evicted.ok()) << evicted;
  }
  for (int ended = 0; ended < 2; ++ended) {
    const Json event = job->WaitForEvent("pod_ended");
    ASSERT_FALSE(event.is_null());
    EXPECT_EQ(event["failure"], false) << event;
  }
  // Two others wait for the node, and the master says so.
  for (int id : {2, 3}) {
    EXPECT_FALSE(pods()
                     .WaitForPod(job->Worker(id),
                                 [](const Json& pod) {
                                   return absl::StrContains(
                                       pod.value("status", Json()).dump(),
                                       "unschedulable");
                                 })
                     .is_null())
        << id;
  }
  EXPECT_TRUE(WaitForLine(job->client().out_path(), "unschedulable"));
  EXPECT_TRUE(TopShows("drained", HasSubstr("unschedulable")));
  ASSERT_TRUE(Cordon(name, false).ok());
  // The two that leave may form one more world, so as to save the model.
  const Json after = job->WaitForEvent("world", [](const Json& event) {
    return event["members"] == Json({2, 3}) || event["members"] == Json({3, 2});
  });
  ASSERT_FALSE(after.is_null());
  ASSERT_EQ(job->Wait(kWholeJob), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), 4));
  // Whoever went last saved the model; no step was trained again.
  EXPECT_THAT(ReadFile(job->audit()).value_or(""), Not(HasSubstr("cut_back")));
  const std::string restored = "restored /out/c/version-";
  EXPECT_TRUE(absl::StrContains(Log(job->Worker(2)), restored) ||
              absl::StrContains(Log(job->Worker(3)), restored));
}

TEST_F(JobNodeTest, ApiServerAwayWhileAWorkerDies) {
  const char* variable = getenv("ELASTICDL_TEST_APISERVER_PID");
  int pid = 0;
  if (variable == nullptr || !absl::SimpleAtoi(variable, &pid)) {
    GTEST_SKIP() << "no ELASTICDL_TEST_APISERVER_PID";
  }
  int outage = 60;
  variable = getenv("ELASTICDL_TEST_OUTAGE_SECONDS");
  if (variable != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(variable, &outage)) << variable;
  }
  // One worker alone takes more than four seconds for an epoch; the replacement
  // has more than half a minute to come after the server.
  const int epochs = 6 + outage / 4;
  const Json spec = {{"worker_pod_spec", Killable("elasticdl-worker")}};
  const auto job = Train(
      "no-server", {absl::StrCat("--num_epochs=", epochs), "--num_workers=2",
                    kPaced, "--cluster_spec_json=" + spec.dump()});
  const Json before = job->WaitForWorld(2);
  ASSERT_FALSE(before.is_null());
  ASSERT_FALSE(job->WaitForFirstStep(before).is_null());

  Pause away(pid);
  const absl::Time back = absl::Now() + absl::Seconds(outage);
  ASSERT_TRUE(KillContainer(job->Worker(1)));
  const Json alone = job->WaitForWorld(1);
  ASSERT_FALSE(alone.is_null());
  EXPECT_EQ(alone["members"], Json::array({0}));
  ASSERT_FALSE(job->WaitForFirstStep(alone).is_null());
  // What it trains meanwhile is committed.
  LineFollower audit(job->audit());
  int ranges = 0;
  while (absl::Now() < back && audit.Next(back - absl::Now()).has_value()) {
    ++ranges;
  }
  away.End();
  EXPECT_GT(ranges, 0);
  const Json together = job->WaitForWorld(2);
  ASSERT_FALSE(together.is_null());
  EXPECT_EQ(together["members"], Json::array({0, 2}));
  printf(
      "measured: no API server for %d s: the other paused for %.1f ms; "
      "replaced %.1f s "
      "after the server was back\n",
      outage, alone.value("pause_ms", 0.0),
      TimeOf(together) - absl::ToDoubleSeconds(back - absl::UnixEpoch()));
  ASSERT_EQ(job->Wait(kWholeJob), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), epochs));
  EXPECT_THAT(Log(job->Worker(0)), Not(HasSubstr("restored ")));
}

}  // namespace
}  // namespace elasticdl::kube::test
