// Experiments with real jobs: runs by a plan, kills, interruption and
// continuation, jobs that share a machine, a peer.
#include <signal.h>

#include <fstream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "gmock/gmock.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Loading Python's torch on a busy machine.
constexpr absl::Duration kLong = absl::Seconds(200);

class ExperimentTest : public JobTest {
 protected:
  ExperimentTest() { EXPECT_TRUE(MakeDirectories(Path("out")).ok()); }

  // Writes plan.yaml: the flags of all jobs, then `rest`. 20 epochs of 20
  // minibatches that take 10 ms each at least.
  std::string WritePlan(const std::string& rest) {
    std::ofstream file(Path("plan.yaml"));
    file << "job:\n"
         << "  model_zoo: " << Zoo() << "\n"
         << "  model: linear.custom_model\n"
         << "  training_data: " << train_csv() << "\n"
         << "  num_minibatches_per_task: 2\n"
         << "  num_epochs: 20\n"
         << "  threads: 1\n"
         << "  failpoints: worker.step=delay(10)\n"
         << rest;
    return Path("plan.yaml");
  }

  std::unique_ptr<ChildProcess> Experiment(const std::string& name,
                                           const std::string& plan) {
    return Run(name, {Program("elasticdl"), "experiment", "run", plan,
                      "--output=" + Path("out")});
  }

  std::vector<Json> Results() {
    std::vector<Json> results;
    for (const std::string& line : Lines(Path("out/runs.jsonl"))) {
      results.push_back(Json::parse(line));
    }
    return results;
  }
};

constexpr char kTwoRunsWithAKill[] = R"(  workers: 2
  min_workers: 2
matrix:
  batch: [8, 16]
traces:
  - name: kill
    events:
      - {step: 5, kill: 1}
)";

TEST_F(ExperimentTest, IsInterruptedAndContinues) {
  const std::string plan = WritePlan(kTwoRunsWithAKill);
  LineFollower results(Path("out/runs.jsonl"));
  {
    const auto first = Experiment("first", plan);
    ASSERT_TRUE(results.Next(kLong).has_value()) << first->err();
    first->Signal(SIGINT);
    EXPECT_EQ(first->Wait(), 130) << first->out() << first->err();
    EXPECT_THAT(first->err(), HasSubstr("interrupted"));
    EXPECT_THAT(Results(), SizeIs(1));
  }
  const auto second = Experiment("second", plan);
  EXPECT_EQ(second->Wait(kLong), 0) << second->out() << second->err();
  EXPECT_THAT(second->out(),
              AllOf(Not(HasSubstr("[1/2]")), HasSubstr("[2/2]"),
                    HasSubstr("1 kill"), HasSubstr("ledger exact")));
  std::set<std::string> ids;
  for (const Json& result : Results()) {
    EXPECT_TRUE(result.at("ok")) << result;
    EXPECT_EQ(result.at("ledger"), "exact");
    EXPECT_EQ(result.at("ledger_records"), 20 * kTrainRecords);
    EXPECT_EQ(result.at("measured").at("kills"), 1);
    EXPECT_THAT(result.at("measured").at("recovery_ms"), SizeIs(1));
    EXPECT_GT(result.at("measured").at("records_per_second"), 0);
    const std::string id = result.at("id");
    ids.insert(id);
    EXPECT_TRUE(LedgerIsExact(Path("out/runs/" + id + "/audit.jsonl"), 20));
  }
  EXPECT_THAT(ids, SizeIs(2));
  EXPECT_THAT(Lines(Path("out/results.csv")), SizeIs(3));
  EXPECT_EQ(Json::parse(Contents(Path("out/results.json"))).at("done"), 2);
  EXPECT_THAT(Contents(Path("out/report.html")),
              AllOf(HasSubstr("<svg"), HasSubstr("Throughput against batch")));
  // There is nothing left to do.
  const auto third = Experiment("third", plan);
  EXPECT_EQ(third->Wait(), 0);
  EXPECT_THAT(third->out(), Not(HasSubstr("[")));
}

TEST_F(ExperimentTest, AKilledOneLeavesNoProcessAndContinues) {
  const std::string plan = WritePlan(R"(  workers: 2
repeats: 1
)");
  {
    const auto first = Experiment("first", plan);
    FolderWatch watch(Path("out"));
    ASSERT_TRUE(watch.Until([&] { return IsDirectory(Path("out/runs")); }));
    ASSERT_TRUE(FolderWatch(Path("out/runs")).Until([&] {
      return !List(Path("out/runs")).empty();
    }));
    const std::string id = List(Path("out/runs"))[0];
    LineFollower events(Path(absl::StrCat("out/runs/", id, "/events.jsonl")));
    for (auto line = events.Next(kLong); line.has_value();
         line = events.Next(kLong)) {
      if (Json::parse(*line).at("event") == "worker_ready") break;
    }
    first->Signal(SIGKILL);
    EXPECT_EQ(first->Wait(), 128 + SIGKILL);
  }
  const auto second = Experiment("second", plan);
  EXPECT_EQ(second->Wait(kLong), 0) << second->out() << second->err();
  EXPECT_THAT(Results(), SizeIs(1));
}

TEST_F(ExperimentTest, JobsShareTheSlots) {
  const std::string plan = WritePlan(R"(matrix:
  policy: [elastic, gang]
shared:
  slots: 3
  jobs:
    - {name: a, workers: 2}
    - {name: b, workers: 2, arrives: 100ms}
)");
  const auto run = Experiment("shared", plan);
  ASSERT_EQ(run->Wait(kLong), 0) << run->out() << run->err();
  const std::vector<Json> results = Results();
  ASSERT_THAT(results, SizeIs(2));
  for (const Json& result : results) {
    EXPECT_TRUE(result.at("ok")) << result;
    EXPECT_EQ(result.at("ledger"), "exact");
    EXPECT_EQ(result.at("ledger_records"), 2 * 20 * kTrainRecords);
    const Json& shared = result.at("shared");
    EXPECT_GT(shared.at("makespan"), 0);
    const std::string id = result.at("id");
    for (const char* job : {"a", "b"}) {
      EXPECT_TRUE(LedgerIsExact(
          Path(absl::StrCat("out/runs/", id, "/", job, "/audit.jsonl")), 20));
    }
    if (result.at("policy") != "gang") continue;
    // The second starts after the first has ended.
    const double a = shared.at("completion").at("a");
    const double b = shared.at("waiting").at("b");
    EXPECT_GT(b + 0.1, a);
  }
  EXPECT_THAT(Contents(Path("out/report.html")), HasSubstr("Makespan"));
}

TEST_F(ExperimentTest, BadPlansAreRefusedWithTheirLine) {
  const struct {
    const char* rest;
    const char* message;
  } cases[] = {
      {"matrix:\n  batch: [0]\n", "plan.yaml:10: --minibatch_size"},
      {"  no_such_flag: 1\n", "plan.yaml:9: unknown flag --no_such_flag"},
      {"  image: x\ntraces:\n  - {name: s, events: [{at: 1s, stop: 1, for: "
       "1s}]}\n",
       "plan.yaml:9: a cluster cannot stop a process"},
      {"  image: x\nseconds: 3\nmatrix:\n  peer: [torchrun]\n",
       "plan.yaml:12: peer torchrun runs on this machine only"},
      {"  image: x\nshared:\n  slots: 3\n  jobs:\n    - {workers: 2, "
       "min_workers: 2}\n",
       "plan.yaml:9: job job1: min_workers has no effect on a cluster"},
      {"shared:\n  slots: 3\n  jobs:\n    - {workers: 2}\n    - {workers: 2, "
       "flags: {image: x}}\n",
       "plan.yaml:13: job job2 would run elsewhere than the others"},
      {"  event_log: x\n", "plan.yaml:9: --event_log is set by"},
      {"seconds: 3\nmatrix:\n  peer: [torchrun]\n",
       "plan.yaml:11: peer torchrun has no model"},
      {"traces: 3\n", "plan.yaml:9: traces must be a list"},
  };
  for (const auto& one : cases) {
    const auto run = Experiment("bad", WritePlan(one.rest));
    EXPECT_EQ(run->Wait(), 2) << one.rest << run->out();
    EXPECT_THAT(run->err(), AllOf(StartsWith("elasticdl experiment: "),
                                  HasSubstr(one.message)));
  }
  EXPECT_THAT(List(Path("out")), IsEmpty());
}

TEST_F(ExperimentTest, RunsAPeer) {
  const auto torch =
      Run("torch", {"/usr/bin/python3", "-c", "import torch.distributed"});
  if (torch->Wait(kLong) != 0) GTEST_SKIP() << "no python3-torch";
  std::ofstream(Path("plan.yaml")) << R"(seconds: 4
job: {model_zoo: zoo, model: mnist.mlp.custom_model,
      training_data: "synthetic:records=100,image=784", workers: 2}
matrix: {peer: [torchrun]}
traces:
  - name: kill
    mtbf: 100000s
)";
  const auto run = Experiment("peer", Path("plan.yaml"));
  ASSERT_EQ(run->Wait(kLong), 0) << run->out() << run->err();
  const std::vector<Json> results = Results();
  ASSERT_THAT(results, SizeIs(1));
  EXPECT_TRUE(results[0].at("ok")) << results[0];
  EXPECT_GT(results[0].at("measured").at("records_per_second"), 0);
  EXPECT_THAT(results[0].at("measured").at("save_ms"), Not(IsEmpty()));
}

}  // namespace
}  // namespace elasticdl::test
