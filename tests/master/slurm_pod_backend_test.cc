// Pods as steps of a real Slurm of one node: the contract of pod backends, and
// what is particular to steps. Skipped where Slurm is not installed.
#include "slurm_pod_backend.h"

#include <signal.h>
#include <sys/stat.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/process.h"
#include "master/pod_backend_contract.h"
#include "support/follow.h"
#include "support/one_node_slurm.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

class SlurmPlace : public PodPlace {
 public:
  explicit SlurmPlace(const test::OneNodeSlurm::Options& options = {}) {
    auto started = test::OneNodeSlurm::Start(options);
    // Anything but a missing package is a failure, not a reason to skip.
    if (absl::IsNotFound(started.status())) {
      why_not_ = std::string(started.status().message());
    } else {
      EXPECT_TRUE(started.ok()) << started.status();
    }
    if (!started.ok()) return;
    cluster = *std::move(started);
    const auto job = cluster->Allocate(tasks);
    EXPECT_TRUE(job.ok()) << job.status();
    slurm.job_id = job.value_or("");
  }

  std::string WhyNot() const override { return why_not_; }
  absl::StatusOr<std::unique_ptr<PodBackend>> Start(
      PodEventSink sink) override {
    std::vector<std::string> environment = process::InheritedEnvironment();
    environment.push_back(cluster->variable());
    // What an allocation sets, and what would mislead srun.
    environment.push_back("SLURM_NTASKS=7");
    environment.push_back("SLURM_MEM_PER_NODE=100000");
    return StartSlurmPodBackend(slurm, environment, std::move(sink));
  }
  absl::Status TakeAway(const PodEvent& pod) override {
    return kill(pod.pid, SIGKILL) == 0 ? absl::OkStatus()
                                       : absl::InternalError("kill");
  }

  static constexpr int tasks = 2;
  std::unique_ptr<test::OneNodeSlurm> cluster;
  SlurmOptions slurm;

 private:
  std::string why_not_;
};

std::unique_ptr<PodPlace> MakeSlurm() { return std::make_unique<SlurmPlace>(); }

INSTANTIATE_TEST_SUITE_P(Slurm, PodBackendContract,
                         ::testing::Values(&MakeSlurm));

class SlurmPods : public PodBackendContract {
 protected:
  SlurmPlace& place() { return static_cast<SlurmPlace&>(*place_); }
};

TEST_P(SlurmPods, LeavesInAnOrderlyWayWhenDeleted) {
  Start();
  test::TempDir dir;
  const std::string file = dir.Path("left");
  // It runs before its shell has come to the trap.
  const std::string trapped = dir.Path("trapped");
  ASSERT_EQ(mkfifo(trapped.c_str(), 0600), 0);
  ASSERT_TRUE(Create(0, "trap 'echo bye >" + file + "; exit 0' TERM; echo >" +
                            trapped + "; sleep 1000 & wait")
                  .ok());
  EXPECT_GT(Next(/*final=*/false).pid, 0);
  EXPECT_EQ(ReadFile(trapped).value_or("nothing"), "\n");
  ASSERT_TRUE(backend_->Delete(Name(0), absl::Seconds(20)).ok());
  EXPECT_EQ(Next(/*final=*/true).exit_code, 0);
  EXPECT_EQ(ReadFile(file).value_or("nothing"), "bye\n");
}

TEST_P(SlurmPods, OutputGoesToTheLog) {
  Start();
  test::TempDir dir;
  PodSpec spec;
  spec.name = Name(0);
  spec.argv = {"sh", "-c", "echo to output; echo to error >&2; exit 3"};
  spec.log_file = dir.Path("log");
  ASSERT_TRUE(backend_->Create(spec).ok());
  EXPECT_EQ(Next(/*final=*/true).exit_code, 3);
  const std::string log = ReadFile(spec.log_file).value_or("");
  EXPECT_THAT(log, HasSubstr("to output"));
  EXPECT_THAT(log, HasSubstr("to error"));
}

// Two tasks: the third pod says that it waits, and runs when one has ended.
TEST_P(SlurmPods, WaitsForAFreeTask) {
  Start();
  ASSERT_TRUE(CreatePolite(0).ok());
  ASSERT_TRUE(CreatePolite(1).ok());
  Next(/*final=*/false);
  Next(/*final=*/false);
  ASSERT_TRUE(CreatePolite(2).ok());
  std::string message;
  while (message.empty()) {
    const auto event = events_.Pop(kPodPatience);
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->name, Name(2));
    EXPECT_EQ(event->phase, PodPhase::kPending);
    message = event->message;
  }
  EXPECT_THAT(message, HasSubstr("free task"));
  ASSERT_TRUE(backend_->Delete(Name(0), absl::Seconds(20)).ok());
  EXPECT_EQ(Next(/*final=*/true).name, Name(0));
  EXPECT_EQ(Next(/*final=*/false).name, Name(2));
}

TEST_P(SlurmPods, DeleteOfOneThatWaits) {
  Start();
  ASSERT_TRUE(CreatePolite(0).ok());
  ASSERT_TRUE(CreatePolite(1).ok());
  Next(/*final=*/false);
  Next(/*final=*/false);
  ASSERT_TRUE(CreatePolite(2).ok());
  ASSERT_TRUE(backend_->Delete(Name(2), absl::Seconds(20)).ok());
  const PodEvent end = Next(/*final=*/true);
  EXPECT_EQ(end.name, Name(2));
  EXPECT_EQ(end.phase, PodPhase::kDeleted);
}

// The master has died: its srun go with it, and the steps with those.
TEST_P(SlurmPods, StepsEndWithTheirProxies) {
  Start();
  ASSERT_TRUE(CreatePolite(0).ok());
  const pid_t pod = Next(/*final=*/false).pid;
  const auto steps =
      place().cluster->Run({"squeue", "--steps", "--noheader", "--format=%j"});
  EXPECT_THAT(steps.value_or(""), HasSubstr(Name(0)));
  backend_->Stop();
  EXPECT_TRUE(test::WaitForEnd(pod));
}

INSTANTIATE_TEST_SUITE_P(Slurm, SlurmPods, ::testing::Values(&MakeSlurm));

// Every worker has its own GPU, and servers have none.
TEST(SlurmGpuTest, OnePerWorker) {
  test::OneNodeSlurm::Options options;
  options.gpus = 2;
  auto cluster = test::OneNodeSlurm::Start(options);
  if (absl::IsNotFound(cluster.status())) {
    GTEST_SKIP() << cluster.status().message();
  }
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_TRUE((*cluster)
                  ->Run({"salloc", "--ntasks=3", "--gres=gpu:2", "--no-shell"})
                  .ok());
  SlurmOptions slurm;
  slurm.job_id = "2";
  slurm.gpus = true;
  std::vector<std::string> environment = process::InheritedEnvironment();
  environment.push_back((*cluster)->variable());
  Queue<PodEvent> events(100);
  auto backend = StartSlurmPodBackend(
      slurm, environment, [&](const PodEvent& event) { events.Push(event); });
  ASSERT_TRUE(backend.ok()) << backend.status();
  test::TempDir dir;
  for (int id = 0; id < 3; ++id) {
    PodSpec spec;
    spec.name = absl::StrCat("pod-", id);
    spec.type = id < 2 ? PodType::kWorker : PodType::kPs;
    spec.argv = {"sh", "-c",
                 absl::StrCat("echo \"<$CUDA_VISIBLE_DEVICES>\" > ",
                              dir.Path(spec.name), "; sleep 1000 & wait")};
    ASSERT_TRUE((*backend)->Create(spec).ok());
  }
  std::set<std::string> seen;
  for (int id = 0; id < 3; ++id) {
    ASSERT_TRUE(test::WaitForFile(dir.Path(absl::StrCat("pod-", id))));
    std::string text;
    test::FolderWatch(dir.path()).Until([&] {
      text = ReadFile(dir.Path(absl::StrCat("pod-", id))).value_or("");
      return absl::EndsWith(text, "\n");
    });
    seen.insert(text);
  }
  EXPECT_THAT(seen, ElementsAre("<0>\n", "<1>\n", "<>\n"));
  (*backend)->Stop();
}

TEST(StepProxyTest, Command) {
  SlurmOptions slurm;
  slurm.job_id = "12";
  slurm.cpus_per_task = 3;
  PodSpec spec;
  spec.name = "w";
  spec.argv = {"program", "--flag"};
  const PodProxy proxy = StepProxy(slurm, "here");
  EXPECT_THAT(
      proxy.start(spec),
      IsSupersetOf({"srun", "--jobid=12", "--job-name=w", "--mpi=none",
                    "--exact", "--cpus-per-task=3", "program", "--flag"}));
  EXPECT_THAT(proxy.terminate("12.4"),
              ElementsAre("scancel", "--signal=TERM", "12.4"));
}

TEST(StepProxyTest, WhatAStepSays) {
  SlurmOptions slurm;
  slurm.job_id = "12";
  const PodProxy proxy = StepProxy(slurm, "here");
  auto place = proxy.parse("elasticdl-step 4 4711 here");
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->id, "12.4");
  EXPECT_EQ(place->pid, 4711);
  // A pid of another node is of no use.
  EXPECT_EQ(proxy.parse("elasticdl-step 4 4711 there")->pid, 0);
  for (const char* bad :
       {"", "hello", "elasticdl-step", "elasticdl-step 4 4711",
        "elasticdl-step x 4711 here", "elasticdl-step 4 -1 here",
        "elasticdl-step 4 4711 here there"}) {
    EXPECT_FALSE(proxy.parse(bad).ok()) << bad;
  }
}

TEST(SrunEnvironmentTest, DropsWhatTheAllocationSet) {
  EXPECT_THAT(
      SrunEnvironment({"PATH=/bin", "SLURM_NTASKS=7", "SLURM_CONF=/etc/s",
                       "SLURMD_NODENAME=n", "SRUN_DEBUG=3", "SLURMY=1"}),
      ElementsAre("PATH=/bin", "SLURM_CONF=/etc/s", "SLURMY=1"));
}

}  // namespace
}  // namespace elasticdl::master
