// An experiment whose runs are jobs on a real cluster: interrupted, continued,
// with a kill. See job_fixture.h for what it needs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/json_text.h"
#include "kube/job_fixture.h"

namespace elasticdl::kube::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kWholeExperiment = absl::Minutes(5);
constexpr int kEpochs = 8;

class JobExperimentTest : public KubeJobTest {
 protected:
  void SetUp() override {
    KubeJobTest::SetUp();
    if (!IsSkipped() && !HasFailure()) GrantRights();
  }

  std::string WritePlan() {
    const std::string path = Path("Kill_One.yaml");
    std::ofstream plan(path);
    plan << "job:\n"
         << "  image: " << image() << "\n"
         << "  namespace: " << space() << "\n"
         << "  image_pull_policy: IfNotPresent\n"
         << "  model: mnist.mlp.custom_model\n"
         << "  training_data: /data/mnist/train\n"
         << "  volume: host_path=" << data() << ",mount_path=/data\n"
         << "  master_resource_request: cpu=50m,memory=128Mi\n"
         << "  master_resource_limit: cpu=1,memory=1024Mi\n"
         << "  worker_resource_request: cpu=100m,memory=256Mi\n"
         << "  worker_resource_limit: cpu=1,memory=2048Mi\n"
         << "  distribution_strategy: AllreduceStrategy\n"
         << "  batch: 64\n"
         << "  threads: 1\n"
         << "  num_epochs: " << kEpochs << "\n"
         << "  failpoints: worker.step=delay(5)\n"
         << "  workers: 2\n"
         << "traces:\n"
         << "  - name: kill\n"
         << "    events: [{step: 100, kill: 1}]\n";
    return path;
  }

  std::unique_ptr<ChildProcess> Experiment(const std::string& name,
                                           const std::string& plan) {
    ChildProcess::Options options;
    options.argv = {ELASTICDL_PROGRAM, "experiment", "run", plan,
                    "--output=" + Path("results")};
    options.log = Path(name);
    return std::make_unique<ChildProcess>(options);
  }

  std::string Contents(const std::string& name) const {
    return ReadFile(Path(absl::StrCat("results/", name))).value_or("");
  }

  // All of a job that has been there.
  void ExpectNothingLeft() {
    EXPECT_TRUE(pods().WaitUntil(
        [](const PodBoard::PodMap& pods) { return pods.empty(); }));
    for (const Resource& resource : {Secrets(), Services()}) {
      const auto left = client().List(resource, "app=elasticdl");
      ASSERT_TRUE(left.ok()) << left.status();
      EXPECT_THAT(ListAt(*left, "/items"), IsEmpty()) << left->dump(1);
    }
    EXPECT_THAT(ListDirectory(Path("results/on-cluster"))
                    .value_or(std::vector<std::string>{"unreadable"}),
                IsEmpty());
  }
};

TEST_F(JobExperimentTest, IsInterruptedAndContinuesWithAnExactLedger) {
  const std::string plan = WritePlan();
  {
    const auto first = Experiment("first", plan);
    ASSERT_TRUE(pods().WaitUntil([](const PodBoard::PodMap& pods) {
      int running = 0;
      for (const auto& [name, pod] : pods) running += HasPhase(pod, "Running");
      return running == 3;
    })) << first->out()
        << first->err();
    first->Signal(SIGINT);
    EXPECT_EQ(first->Wait(kPatience).value_or(-1), 130)
        << first->out() << first->err();
    EXPECT_THAT(first->err(), HasSubstr("interrupted"));
    ExpectNothingLeft();
    EXPECT_EQ(Contents("runs.jsonl"), "");
  }
  const auto second = Experiment("second", plan);
  ASSERT_EQ(second->Wait(kWholeExperiment).value_or(-1), 0)
      << second->out() << second->err();
  EXPECT_THAT(second->out(),
              AllOf(HasSubstr("1 kill"), HasSubstr("ledger exact")));
  ExpectNothingLeft();
  const Json result = ParseJson(Contents("runs.jsonl"));
  ASSERT_TRUE(result.is_object()) << Contents("runs.jsonl");
  EXPECT_EQ(result.at("ok"), true) << result;
  EXPECT_EQ(result.at("ledger"), "exact");
  EXPECT_EQ(result.at("ledger_records"), kEpochs * kTrainRecords);
  EXPECT_EQ(result.at("measured").at("state"), "succeeded");
  EXPECT_EQ(result.at("measured").at("kills"), 1);
  EXPECT_THAT(result.at("measured").at("recovery_ms"), SizeIs(1));
  const std::string run =
      absl::StrCat("results/runs/", result.at("id").get<std::string>());
  // By other code than the experiment's.
  EXPECT_TRUE(LedgerIsExact(Path(run + "/audit.jsonl"), kEpochs));
  EXPECT_THAT(Contents("report.html"),
              AllOf(HasSubstr("On a cluster"), HasSubstr("<svg")));
  printf("measured: experiment on a cluster: recovery %s ms after a kill\n",
         result.at("measured").at("recovery_ms").dump().c_str());
}

}  // namespace
}  // namespace elasticdl::kube::test
