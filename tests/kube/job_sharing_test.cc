// An experiment in which two jobs together want more than a node of a real
// cluster has: elastic, and as gangs. See job_fixture.h for what it needs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/json_text.h"
#include "kube/job_fixture.h"

namespace elasticdl::kube::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kWholeExperiment = absl::Minutes(12);
// Long enough that the second job still trains when the first has ended.
constexpr int kEpochs = 8;
constexpr int64_t kMaster = 50;

class JobSharingTest : public KubeJobTest {
 protected:
  void SetUp() override {
    KubeJobTest::SetUp();
    if (!IsSkipped() && !HasFailure()) GrantRights();
  }

  // Two jobs of two workers; three workers fit.
  std::string WritePlan(const Json& node, int64_t worker) {
    const std::string path = Path("two-jobs.yaml");
    std::ofstream plan(path);
    plan << "timeout: 5m\n"
         << "job:\n"
         << "  image: " << image() << "\n"
         << "  namespace: " << space() << "\n"
         << "  image_pull_policy: IfNotPresent\n"
         << "  cluster_spec_json: '" << OnNode(node).dump() << "'\n"
         << "  model: mnist.mlp.custom_model\n"
         << "  training_data: /data/mnist/train\n"
         << "  volume: host_path=" << data() << ",mount_path=/data\n"
         << "  master_resource_request: cpu=" << kMaster << "m,memory=128Mi\n"
         << "  master_resource_limit: cpu=1,memory=1024Mi\n"
         << "  worker_resource_request: cpu=" << worker << "m,memory=256Mi\n"
         << "  worker_resource_limit: cpu=" << worker << "m,memory=2048Mi\n"
         << "  batch: 64\n"
         << "  threads: 1\n"
         << "  num_epochs: " << kEpochs << "\n"
         << "  failpoints: worker.step=delay(5)\n"
         << "matrix:\n"
         << "  policy: [elastic, gang]\n"
         << "shared:\n"
         << "  slots: 3\n"
         << "  jobs:\n"
         << "    - {name: first, workers: 2}\n"
         << "    - {name: second, workers: 2, arrives: 2s}\n";
    return path;
  }

  // The results by policy.
  std::map<std::string, Json> Results() const {
    std::map<std::string, Json> results;
    const std::string text = ReadFile(Path("results/runs.jsonl")).value_or("");
    for (const absl::string_view line :
         absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const Json result = ParseJson(std::string(line));
      if (result.is_object()) results[result.value("policy", "")] = result;
    }
    return results;
  }

  // How many workers a job had, one after the other.
  static std::vector<int64_t> Sizes(const Json& result, const char* job) {
    std::vector<int64_t> sizes;
    for (const Json& point : result.at("shared").at("timeline")) {
      if (point.at(1) == job) sizes.push_back(point.at(2));
    }
    return sizes;
  }
};

TEST_F(JobSharingTest, ElasticJobsTakeWhatAGangWouldLeaveEmpty) {
  const Json node = Node();
  if (node.is_null()) GTEST_SKIP() << "may not list nodes, or all are tainted";
  const int64_t free = FreeMillicpu(node) - 2 * kMaster;
  const int64_t worker = free * 30 / 100;
  if (worker < 200) {
    GTEST_SKIP() << "only " << free << "m of CPU are free on node "
                 << TextAt(node, "/metadata/name");
  }
  const Outcome run =
      Run({ELASTICDL_PROGRAM, "experiment", "run", WritePlan(node, worker),
           "--output=" + Path("results")},
          kWholeExperiment);
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const std::map<std::string, Json> results = Results();
  ASSERT_EQ(results.size(), 2u) << run.out;
  for (const auto& [policy, result] : results) {
    SCOPED_TRACE(result.dump());
    EXPECT_EQ(result.at("ok"), true);
    EXPECT_EQ(result.at("on_cluster"), true);
    EXPECT_EQ(result.at("ledger"), "exact");
    EXPECT_EQ(result.at("ledger_records"), 2 * kEpochs * kTrainRecords);
    for (const char* job : {"first", "second"}) {
      // By other code than the experiment's.
      EXPECT_TRUE(LedgerIsExact(
          Path(absl::StrCat("results/runs/", result.at("id").get<std::string>(),
                            "/", job, "/audit.jsonl")),
          kEpochs));
    }
    const Json& shared = result.at("shared");
    printf(
        "measured: two jobs on a cluster, %s: makespan %.1f s, the second "
        "waited %.1f s, %.0f %% of the slots in use\n",
        policy.c_str(), shared.at("makespan").get<double>(),
        shared.at("waiting").at("second").get<double>(),
        shared.at("utilisation").get<double>() * 100);
  }
  const Json& elastic = results.at("elastic");
  const Json& gang = results.at("gang");
  // The scheduler gave it the third slot, and the fourth worker's when the
  // first job had ended: nobody has scaled anything.
  EXPECT_THAT(Sizes(elastic, "second"), AllOf(Contains(1), Contains(2)));
  // A gang waits for the end of the first job, which arrived 2 s earlier.
  EXPECT_GE(gang.at("shared").at("waiting").at("second").get<double>() + 2,
            gang.at("shared").at("completion").at("first").get<double>());
  EXPECT_LT(elastic.at("shared").at("waiting").at("second").get<double>(),
            gang.at("shared").at("waiting").at("second").get<double>());
  EXPECT_THAT(ReadFile(Path("results/report.html")).value_or(""),
              AllOf(HasSubstr("On a cluster"), HasSubstr("Makespan"),
                    HasSubstr("scheduler starts those that fit")));
  EXPECT_TRUE(pods().WaitUntil(
      [](const PodBoard::PodMap& pods) { return pods.empty(); }));
  EXPECT_THAT(ListDirectory(Path("results/on-cluster"))
                  .value_or(std::vector<std::string>{"unreadable"}),
              IsEmpty());
}

}  // namespace
}  // namespace elasticdl::kube::test
