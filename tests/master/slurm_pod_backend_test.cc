// Pods as steps of a real Slurm: the contract of pod backends, and what is
// particular to steps. Skipped where Slurm is not installed.
#include "slurm_pod_backend.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/flags/slurm.h"
#include "elasticdl/process.h"
#include "master/pod_backend_contract.h"
#include "support/follow.h"
#include "support/local_slurm.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

// Is it a child of this process?
bool IsOwnChild(pid_t pid) {
  const std::string status =
      ReadFile(absl::StrCat("/proc/", pid, "/status")).value_or("");
  return absl::StrContains(status, absl::StrCat("\nPPid:\t", getpid(), "\n"));
}

// The srun of this pod; 0 if there is none. Tests that run beside this one have
// pods of the same names.
pid_t Srun(const std::string& pod) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    const std::string command = ReadFile(entry.path() / "cmdline").value_or("");
    // Not the other one with the same command, which is a child of the first.
    if (absl::StartsWith(command, std::string("srun\0", 5)) &&
        absl::StrContains(command,
                          "--job-name=" + pod + std::string(1, '\0')) &&
        IsOwnChild(pid)) {
      return pid;
    }
  }
  return 0;
}

class SlurmPlace : public PodPlace {
 public:
  explicit SlurmPlace(const test::LocalSlurm::Options& options = {}) {
    auto started = test::LocalSlurm::Start(options);
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
  std::unique_ptr<test::LocalSlurm> cluster;
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

// srun is killed, with or without the process by which it would end its step.
// Both times the step ends, though the pod ignores all but SIGKILL, and its
// task is free.
TEST_P(SlurmPods, StepsEndWhenTheirProxiesAreKilled) {
  Start();
  constexpr char kStubborn[] = "trap '' TERM HUP INT; sleep 1000 & wait";
  ASSERT_TRUE(CreatePolite(0).ok());
  EXPECT_EQ(Next(/*final=*/false).name, Name(0));
  for (const int id : {1, 2}) {
    ASSERT_TRUE(Create(id, kStubborn).ok());
    const PodEvent running = Next(/*final=*/false);
    EXPECT_EQ(running.name, Name(id));
    const pid_t srun = Srun(Name(id));
    ASSERT_GT(srun, 0);
    ASSERT_EQ(kill(id == 1 ? srun : -srun, SIGKILL), 0);
    const PodEvent end = Next(/*final=*/true);
    EXPECT_EQ(end.name, Name(id));
    EXPECT_EQ(end.signal, SIGKILL);
    EXPECT_TRUE(test::WaitForEnd(running.pid)) << id;
  }
  ASSERT_TRUE(CreatePolite(3).ok());
  EXPECT_EQ(Next(/*final=*/false).name, Name(3));
}

// It may be able to later, and it is no failure of the program. The log says
// why.
TEST_P(SlurmPods, ASrunThatCannotStart) {
  place().slurm.job_id = "4711";
  Start();
  test::TempDir dir;
  PodSpec spec;
  spec.name = Name(0);
  spec.argv = {"true"};
  spec.log_file = dir.Path("log");
  ASSERT_TRUE(backend_->Create(spec).ok());
  auto event = events_.Pop(kPodPatience);
  while (event.has_value() && event->create_error.ok()) {
    event = events_.Pop(kPodPatience);
  }
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->create_error.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(event->create_error.message()),
              HasSubstr("see its log"));
  EXPECT_THAT(ReadFile(spec.log_file).value_or(""),
              HasSubstr("Invalid job id specified"));
}

INSTANTIATE_TEST_SUITE_P(Slurm, SlurmPods, ::testing::Values(&MakeSlurm));

// A TaskProlog of the cluster that says more than a pipe's reader takes at
// once, some of it in one long line, on the same output as the step.
std::unique_ptr<PodPlace> MakeSlurmWithProlog() {
  test::LocalSlurm::Options options;
  options.task_prolog =
      "for line in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do\n"
      "  echo \"print Welcome to the cluster, this is line $line of many\"\n"
      "done\n"
      "printf 'print %5000d\\n' 1\n"
      "echo 'print elasticdl-step is a word like others'\n"
      "echo export FROM_PROLOG=yes";
  return std::make_unique<SlurmPlace>(options);
}

class SlurmPrologPods : public PodBackendContract {};

TEST_P(SlurmPrologPods, WhatAPrologSaysIsNotTheStep) {
  Start();
  test::TempDir dir;
  ASSERT_TRUE(Create(0, "echo $FROM_PROLOG > " + dir.Path("said") +
                            "; trap 'exit 0' TERM; sleep 1000 & wait")
                  .ok());
  EXPECT_GT(Next(/*final=*/false).pid, 0);
  test::FolderWatch(dir.path()).Until([&] {
    return ReadFile(dir.Path("said")).value_or("") == "yes\n";
  });
  EXPECT_EQ(ReadFile(dir.Path("said")).value_or(""), "yes\n");
  ASSERT_TRUE(backend_->Delete(Name(0), absl::Seconds(60)).ok());
  EXPECT_EQ(Next(/*final=*/true).exit_code, 0);
}

INSTANTIATE_TEST_SUITE_P(Slurm, SlurmPrologPods,
                         ::testing::Values(&MakeSlurmWithProlog));

TEST(SlurmBackendTest, WithoutSrunNothingCanBeCreated) {
  test::TempDir dir;
  auto backend = StartSlurmPodBackend(SlurmOptions(), {"PATH=" + dir.path()},
                                      [](const PodEvent&) {});
  ASSERT_TRUE(backend.ok()) << backend.status();
  PodSpec spec;
  spec.name = "pod";
  spec.argv = {"true"};
  const absl::Status status = (*backend)->Create(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("srun"));
}

// As a process inside the allocation would.
void AskFrom(const test::LocalSlurm& cluster,
             flags::SlurmAllocation& allocation) {
  const std::string& variable = cluster.variable();
  const size_t equals = variable.find('=');
  setenv(variable.substr(0, equals).c_str(),
         variable.substr(equals + 1).c_str(), 1);
  flags::AskSlurm(allocation);
  unsetenv(variable.substr(0, equals).c_str());
}

// Two threads for each core: four tasks have two cores, and each step takes
// one. So many workers as are counted run at once.
TEST(SlurmThreadsTest, AStepTakesAWholeCore) {
  test::LocalSlurm::Options options;
  options.threads_per_core = 2;
  auto cluster = test::LocalSlurm::Start(options);
  if (absl::IsNotFound(cluster.status())) {
    GTEST_SKIP() << cluster.status().message();
  }
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto variables = (*cluster)->Run(
      {"salloc", "--ntasks=4", "--quiet", "sh", "-c",
       "echo $SLURM_JOB_NODELIST $SLURM_NTASKS $SLURM_JOB_CPUS_PER_NODE"});
  ASSERT_TRUE(variables.ok()) << variables.status();
  const std::vector<std::string> words =
      absl::StrSplit(absl::StripAsciiWhitespace(*variables), ' ');
  ASSERT_EQ(words.size(), 3u) << *variables;
  const auto job = (*cluster)->Allocate(4);
  ASSERT_TRUE(job.ok()) << job.status();
  auto allocation =
      flags::FindSlurmAllocation([&](const std::string& name) -> std::string {
        if (name == "SLURM_JOB_ID") return *job;
        if (name == "SLURM_JOB_NODELIST") return words[0];
        if (name == "SLURM_NTASKS") return words[1];
        if (name == "SLURM_JOB_CPUS_PER_NODE") return words[2];
        return "";
      });
  ASSERT_TRUE(allocation.has_value());
  AskFrom(**cluster, *allocation);
  EXPECT_EQ(allocation->StepCpus(), 2);
  EXPECT_EQ(allocation->Workers(0), 2);
  SlurmOptions slurm;
  slurm.job_id = *job;
  slurm.cpus_per_task = allocation->StepCpus();
  std::vector<std::string> environment = process::InheritedEnvironment();
  environment.push_back((*cluster)->variable());
  Queue<PodEvent> events(100);
  auto backend = StartSlurmPodBackend(
      slurm, environment, [&](const PodEvent& event) { events.Push(event); });
  ASSERT_TRUE(backend.ok()) << backend.status();
  for (int id = 0; id < 2; ++id) {
    PodSpec spec;
    spec.name = absl::StrCat("pod-", id);
    spec.argv = {"sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"};
    ASSERT_TRUE((*backend)->Create(spec).ok());
  }
  for (int running = 0; running < 2;) {
    const auto event = events.Pop(kPodPatience);
    ASSERT_TRUE(event.has_value());
    ASSERT_FALSE(IsFinal(event->phase)) << DescribePodEnd(*event);
    if (event->phase == PodPhase::kRunning) ++running;
  }
  (*backend)->Stop();
}

// Each node has room for one: the pods are on both. What was started on another
// node ends like any other, also when its srun is killed with all it has.
TEST(SlurmNodesTest, StepsOfSeveralNodes) {
  test::LocalSlurm::Options options;
  options.cpus = 1;
  options.nodes = 2;
  auto cluster = test::LocalSlurm::Start(options);
  if (absl::IsNotFound(cluster.status())) {
    GTEST_SKIP() << cluster.status().message();
  }
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto job = (*cluster)->Allocate(2);
  ASSERT_TRUE(job.ok()) << job.status();
  SlurmOptions slurm;
  slurm.job_id = *job;
  std::vector<std::string> environment = process::InheritedEnvironment();
  environment.push_back((*cluster)->variable());
  Queue<PodEvent> events(100);
  auto backend = StartSlurmPodBackend(
      slurm, environment, [&](const PodEvent& event) { events.Push(event); });
  ASSERT_TRUE(backend.ok()) << backend.status();
  test::TempDir dir;
  const auto create = [&](const std::string& name, const std::string& script) {
    PodSpec spec;
    spec.name = name;
    spec.argv = {"sh", "-c",
                 absl::StrCat("echo $$ > ", dir.Path(name), "; ", script)};
    ASSERT_TRUE((*backend)->Create(spec).ok());
  };
  const auto next = [&](PodPhase phase) {
    while (const auto event = events.Pop(kPodPatience)) {
      if (event->phase == phase) return *event;
    }
    ADD_FAILURE() << PodPhaseName(phase);
    return PodEvent();
  };
  constexpr char kPolite[] = "trap 'exit 0' TERM; sleep 1000 & wait";
  create("one", kPolite);
  create("two", kPolite);
  std::map<std::string, pid_t> pids;
  for (int i = 0; i < 2; ++i) {
    const PodEvent event = next(PodPhase::kRunning);
    pids[event.name] = event.pid;
  }
  const auto steps = (*cluster)->Run(
      {"squeue", "--steps", "--noheader", "--format=%j %N", "--sort=N"});
  EXPECT_THAT(steps.value_or(""), HasSubstr("node2"));
  // A pid is told on this machine only.
  ASSERT_EQ(pids.size(), 2u);
  EXPECT_NE(pids["one"] == 0, pids["two"] == 0);
  const std::string away = pids["one"] == 0 ? "one" : "two";
  ASSERT_TRUE((*backend)->Delete(away, absl::Seconds(20)).ok());
  EXPECT_EQ(next(PodPhase::kDeleted).exit_code, 0);
  create("three", "trap '' TERM HUP INT; sleep 1000 & wait; wait");
  EXPECT_EQ(next(PodPhase::kRunning).pid, 0);
  const pid_t srun = Srun("three");
  ASSERT_GT(srun, 0);
  ASSERT_EQ(kill(-srun, SIGKILL), 0);
  EXPECT_EQ(next(PodPhase::kFailed).name, "three");
  // Here it is a process of this machine after all.
  pid_t pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(ReadFile(dir.Path("three")).value_or(""), &pid));
  EXPECT_TRUE(test::WaitForEnd(pid));
  create("four", kPolite);
  EXPECT_EQ(next(PodPhase::kRunning).name, "four");
  (*backend)->Stop();
}

// Every worker has its own GPU, and servers have none.
TEST(SlurmGpuTest, OnePerWorker) {
  test::LocalSlurm::Options options;
  options.gpus = 2;
  auto cluster = test::LocalSlurm::Start(options);
  if (absl::IsNotFound(cluster.status())) {
    GTEST_SKIP() << cluster.status().message();
  }
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_TRUE((*cluster)
                  ->Run({"salloc", "--ntasks=3", "--gres=gpu:2", "--no-shell"})
                  .ok());
  // What salloc sets says nothing of the GPUs.
  flags::SlurmAllocation allocation;
  allocation.job_id = "2";
  AskFrom(**cluster, allocation);
  EXPECT_EQ(allocation.gpus, 2);
  SlurmOptions slurm;
  slurm.job_id = "2";
  slurm.gpus = allocation.gpus > 0;
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
  EXPECT_THAT(proxy.kill("12.4"),
              ElementsAre("scancel", "--signal=KILL", "12.4"));
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
