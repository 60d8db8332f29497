// Jobs on a real cluster whose pods are taken away: deleted, preempted, killed.
// Each must go on and train every record of every epoch once. See job_fixture.h
// for what they need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "elasticdl/common/file.h"
#include "kube/job_fixture.h"

namespace elasticdl::kube::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Tens of epochs on a small machine.
constexpr absl::Duration kWholeJob = absl::Seconds(240);

double TimeOf(const Json& event) { return event.value("time", 0.0); }

bool IsRunning(const Json& pod) { return HasPhase(pod, "Running"); }

// "2", "1500m" in thousandths of a CPU.
int64_t Millicpu(absl::string_view text) {
  double value = 0;
  const bool milli = absl::ConsumeSuffix(&text, "m");
  if (!absl::SimpleAtod(text, &value)) return 0;
  return std::llround(milli ? value : value * 1000);
}

int64_t RequestOf(const Json& pod) {
  int64_t sum = 0;
  for (const Json& container : ListAt(pod, "/spec/containers")) {
    sum += Millicpu(TextAt(container, "/resources/requests/cpu"));
  }
  return sum;
}

class JobElasticTest : public KubeJobTest {
 protected:
  void SetUp() override {
    KubeJobTest::SetUp();
    if (!IsSkipped() && !HasFailure()) GrantRights();
  }

  // Deletes worker 0 of two and sees the number restored and the job complete.
  void LoseAWorker(const std::string& name, absl::Duration grace) {
    const auto job = Train(name, {"--num_epochs=20", "--num_workers=2",
                                  "--validation_data=/data/mnist/test"});
    ASSERT_FALSE(job->WaitForWorld(2).is_null());
    const double deleted =
        absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
    ASSERT_TRUE(client().Delete(Pods(), job->Worker(0), grace).ok());
    const Json alone = job->WaitForWorld(1);
    ASSERT_FALSE(alone.is_null());
    EXPECT_EQ(alone["members"], Json::array({1}));
    const Json step = job->WaitForEvent("first_step", [&](const Json& event) {
      return event["generation"] == alone["generation"];
    });
    const Json started = job->WaitForEvent("pod_started");
    const Json together = job->WaitForWorld(2);
    ASSERT_FALSE(together.is_null());
    EXPECT_EQ(together["members"], Json::array({1, 2}));
    const Json fresh = pods().WaitForPod(job->Worker(2), IsRunning);
    absl::Time created;
    std::string error;
    EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full,
                                TextAt(fresh, "/metadata/creationTimestamp"),
                                &created, &error))
        << error;
    const double creation = absl::ToDoubleSeconds(created - absl::UnixEpoch());
    printf(
        "%s: the survivor's next step %.3f s after the delete (pause %.1f ms); "
        "new pod: member %.1f s after creation, %.3f s after its start\n",
        name.c_str(), TimeOf(step) - deleted, alone.value("pause_ms", 0.0),
        TimeOf(together) - creation, TimeOf(together) - TimeOf(started));
    ASSERT_EQ(job->Wait(kWholeJob), 0) << job->Output();
    EXPECT_TRUE(LedgerIsExact(job->audit(), 20));
    EXPECT_THAT(Log(job->Worker(1)), Not(HasSubstr("restored ")));
  }

  // A node that takes pods.
  Json Node() {
    const auto nodes = client().List({"", "v1", "nodes", false}, "");
    if (!nodes.ok()) return nullptr;
    for (const Json& node : ListAt(*nodes, "/items")) {
      if (ListAt(node, "/spec/taints").empty()) return node;
    }
    return nullptr;
  }
  // What is not asked for by others there.
  int64_t FreeMillicpu(const Json& node) {
    int64_t free = Millicpu(TextAt(node, "/status/allocatable/cpu"));
    const auto all = client().List({"", "v1", "pods", false}, "");
    EXPECT_TRUE(all.ok()) << all.status();
    if (!all.ok()) return 0;
    for (const Json& pod : ListAt(*all, "/items")) {
      if (TextAt(pod, "/spec/nodeName") == TextAt(node, "/metadata/name") &&
          !HasPhase(pod, "Succeeded") && !HasPhase(pod, "Failed")) {
        free -= RequestOf(pod);
      }
    }
    return free;
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
};

TEST_F(JobElasticTest, DeletedWorkerIsReplaced) {
  LoseAWorker("deleted", absl::Seconds(-1));
}

TEST_F(JobElasticTest, WorkerDeletedWithoutGraceIsReplaced) {
  LoseAWorker("no-grace", absl::ZeroDuration());
}

TEST_F(JobElasticTest, PreemptedWorkerComesBack) {
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
  const Json spec = {
      {"pod_spec",
       {{"nodeSelector",
         {{"kubernetes.io/hostname",
           node.value(
               Json::json_pointer("/metadata/labels/kubernetes.io~1hostname"),
               "")}}}}}};
  const Flags common = {
      absl::StrCat("--worker_resource_request=cpu=", worker, "m,memory=256Mi"),
      absl::StrCat("--master_resource_request=cpu=", kMaster, "m,memory=128Mi"),
      "--master_pod_priority=" + high, "--cluster_spec_json=" + spec.dump()};
  Flags flags = common;
  flags.insert(flags.end(), {"--num_epochs=40", "--num_workers=2",
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
  printf("low-prio-job trained with one worker for %.1f s\n",
         TimeOf(together) - TimeOf(alone));
  EXPECT_TRUE(LedgerIsExact(first->audit(), 40));
  EXPECT_TRUE(LedgerIsExact(second->audit(), 2));
  EXPECT_THAT(Log(first->Worker(2)), Not(HasSubstr("restored ")));
}

TEST_F(JobElasticTest, KilledMasterGoesOn) {
  // The API has no way to kill a container: a shell in it does when a file
  // appears, once.
  const std::string script = R"("$0" "$@" & master=$!
trap 'kill -TERM $master' TERM
while [ ! -e /out/kill ] && kill -0 $master 2>/dev/null; do sleep 0.1; done
if [ -e /out/kill ]; then rm /out/kill; kill -KILL $master; fi
wait $master)";
  const Json spec = {
      {"master_pod_spec",
       {{"container",
         {{"command", {"bash", "-c", script, "elasticdl-master"}}}}}}};
  const auto job =
      Train("killed-master", {"--num_epochs=20", "--num_workers=2",
                              "--validation_data=/data/mnist/test",
                              "--cluster_spec_json=" + spec.dump()});
  const Json before = job->WaitForWorld(2);
  ASSERT_FALSE(before.is_null());
  ASSERT_FALSE(job->WaitForEvent("first_step",
                                 [&](const Json& event) {
                                   return event["generation"] ==
                                          before["generation"];
                                 })
                   .is_null());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(out(), "kill"), "", 0666).ok());
  const Json after = job->WaitForWorld(2);
  ASSERT_FALSE(after.is_null());
  EXPECT_EQ(after["cause"], "the master was restarted");
  ASSERT_EQ(job->Wait(kWholeJob), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), 20));
  EXPECT_THAT(ReadFile(job->audit()).value_or(""), Not(HasSubstr("cut_back")));
  const auto master = client().Get(Pods(), job->Master());
  ASSERT_TRUE(master.ok()) << master.status();
  EXPECT_EQ(NumberAt(ListAt(*master, "/status/containerStatuses")[0],
                     "/restartCount"),
            1);
  printf("killed-master: the workers' world was paused for %.1f ms\n",
         after.value("pause_ms", 0.0));
  for (int id : {0, 1}) {
    EXPECT_THAT(Log(job->Worker(id)), Not(HasSubstr("restored ")));
  }
}

}  // namespace
}  // namespace elasticdl::kube::test
