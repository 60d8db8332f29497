// LocalPodBackend with real processes, started one by one and by a fork server.
// Blockers wait on a FIFO that nobody opens; synchronisation goes through FIFOs
// and events, never through time.
#include "local_pod_backend.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/parent_reaper.h"
#include "elasticdl/process.h"
#include "support/temp_dir.h"

namespace elasticdl::master {
namespace {

using ::testing::HasSubstr;

// Long enough for a loaded machine; only a failing test waits that long.
constexpr absl::Duration kPatience = absl::Seconds(20);

bool EndsWithinPatience(int pidfd) {
  pollfd fd = {pidfd, POLLIN, 0};
  return poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) ==
         1;
}

class LocalPodBackendTest : public ::testing::TestWithParam<bool> {
 protected:
  LocalPodBackendTest() : fifo_(dir_.Path("never")) {
    EXPECT_EQ(mkfifo(fifo_.c_str(), 0600), 0);
    auto backend = LocalPodBackend::Start(
        Options(), [this](const PodEvent& event) { events_.Push(event); });
    EXPECT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }

  static LocalPodBackend::Options Options() {
    LocalPodBackend::Options options;
    options.environment = {"PATH=/usr/bin:/bin", "COLOUR=red"};
    if (GetParam()) options.fork_server = FORKING_SHELL;
    options.fork_server_patience = absl::Milliseconds(20);
    return options;
  }
  PodSpec Shell(const std::string& name, const std::string& script) const {
    PodSpec spec;
    spec.name = name;
    spec.argv = {FORKING_SHELL, "-c", script};
    spec.log_file = dir_.Path(name + ".log");
    return spec;
  }
  // A pod that runs until it is killed.
  PodSpec Blocker(const std::string& name) const {
    return Shell(name, absl::StrCat("exec cat ", fifo_));
  }
  PodEvent Next() {
    auto event = events_.Pop(kPatience);
    EXPECT_TRUE(event.has_value()) << "no event came";
    return event.value_or(PodEvent());
  }
  PodEvent NextAfterRunning() {
    const PodEvent running = Next();
    EXPECT_EQ(running.phase, PodPhase::kRunning);
    EXPECT_GT(running.pid, 0);
    return Next();
  }
  std::string MakeFifo(const std::string& name) {
    const std::string path = dir_.Path(name);
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    return path;
  }

  test::TempDir dir_;
  const std::string fifo_;
  Queue<PodEvent> events_{1000};
  std::unique_ptr<LocalPodBackend> backend_;
};

TEST_P(LocalPodBackendTest, ExitZeroIsSuccess) {
  ASSERT_TRUE(backend_->Create(Shell("a", "exit 0")).ok());
  const PodEvent end = NextAfterRunning();
  EXPECT_EQ(end.name, "a");
  EXPECT_EQ(end.phase, PodPhase::kSucceeded);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(end.reason, PodEndReason::kNone);
}

TEST_P(LocalPodBackendTest, ExitCodeIsReported) {
  ASSERT_TRUE(backend_->Create(Shell("a", "exit 42")).ok());
  const PodEvent end = NextAfterRunning();
  EXPECT_EQ(end.phase, PodPhase::kFailed);
  EXPECT_EQ(end.exit_code, 42);
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.reason, PodEndReason::kError);
  EXPECT_EQ(DescribePodEnd(end), "exit code 42");
}

TEST_P(LocalPodBackendTest, KillFromOutsideIsSignalNine) {
  ASSERT_TRUE(backend_->Create(Blocker("a")).ok());
  const PodEvent running = Next();
  ASSERT_EQ(kill(running.pid, SIGKILL), 0);
  const PodEvent end = Next();
  EXPECT_EQ(end.phase, PodPhase::kFailed);
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_EQ(end.exit_code, -1);
  EXPECT_EQ(DescribePodEnd(end), "signal 9 (SIGKILL)");
}

TEST_P(LocalPodBackendTest, OutputAndEnvironmentReachThePod) {
  PodSpec spec = Shell("a", "echo out $COLOUR $SHAPE; echo err >&2");
  spec.env = {{"SHAPE", "a=b"}, {"COLOUR", "green"}};
  ASSERT_TRUE(backend_->Create(spec).ok());
  EXPECT_EQ(NextAfterRunning().phase, PodPhase::kSucceeded);
  EXPECT_EQ(*ReadFile(spec.log_file), "out green a=b\nerr\n");
}

// All pods of a job share the session of the master, so that the kernel weighs
// their threads against each other; signals of a terminal do not reach them.
TEST_P(LocalPodBackendTest, PodLeadsAGroupInOurSession) {
  ASSERT_TRUE(backend_->Create(Blocker("a")).ok());
  const pid_t pid = Next().pid;
  EXPECT_EQ(getpgid(pid), pid);
  EXPECT_NE(getpgid(pid), getpgrp());
  EXPECT_EQ(getsid(pid), getsid(0));
}

TEST_P(LocalPodBackendTest, PodHasNoDescriptorOfOurs) {
  const Fd leaky(open("/dev/null", O_RDONLY));  // no O_CLOEXEC on purpose
  PodSpec spec = Shell("a", "exec ls /proc/self/fd");
  ASSERT_TRUE(backend_->Create(spec).ok());
  EXPECT_EQ(NextAfterRunning().phase, PodPhase::kSucceeded);
  // 3 is the folder that ls itself has open.
  EXPECT_EQ(*ReadFile(spec.log_file), "0\n1\n2\n3\n");
}

TEST_P(LocalPodBackendTest, DeleteLetsThePodLeave) {
  const std::string ready = MakeFifo("ready");
  ASSERT_TRUE(
      backend_
          ->Create(Shell("a", absl::StrCat("trap 'echo left; exit 0' TERM; "
                                           "echo up >",
                                           ready, "; cat ", fifo_, " & wait")))
          .ok());
  EXPECT_EQ(*ReadFile(ready), "up\n");
  ASSERT_TRUE(backend_->Delete("a", kPatience).ok());
  const PodEvent end = NextAfterRunning();
  EXPECT_EQ(end.phase, PodPhase::kDeleted);
  EXPECT_EQ(end.reason, PodEndReason::kDeleted);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(*ReadFile(dir_.Path("a.log")), "left\n");
}

TEST_P(LocalPodBackendTest, DeleteKillsAfterTheGrace) {
  const std::string ready = MakeFifo("ready");
  ASSERT_TRUE(backend_
                  ->Create(Shell("a", absl::StrCat("trap '' TERM; echo up >",
                                                   ready, "; cat ", fifo_)))
                  .ok());
  EXPECT_EQ(*ReadFile(ready), "up\n");
  ASSERT_TRUE(backend_->Delete("a", absl::Milliseconds(20)).ok());
  const PodEvent end = NextAfterRunning();
  EXPECT_EQ(end.phase, PodPhase::kDeleted);
  EXPECT_EQ(end.signal, SIGKILL);
}

TEST_P(LocalPodBackendTest, SecondDeleteShortensTheGrace) {
  const std::string ready = MakeFifo("ready");
  ASSERT_TRUE(backend_
                  ->Create(Shell("a", absl::StrCat("trap '' TERM; echo up >",
                                                   ready, "; cat ", fifo_)))
                  .ok());
  EXPECT_EQ(*ReadFile(ready), "up\n");
  ASSERT_TRUE(backend_->Delete("a", absl::Hours(1)).ok());
  ASSERT_TRUE(backend_->Delete("a", absl::ZeroDuration()).ok());
  EXPECT_EQ(NextAfterRunning().signal, SIGKILL);
  EXPECT_EQ(backend_->Delete("a", absl::ZeroDuration()).code(),
            absl::StatusCode::kNotFound);
}

TEST_P(LocalPodBackendTest, EndOfTheLeaderEndsItsChildren) {
  const std::string pids = MakeFifo("pids");
  ASSERT_TRUE(
      backend_
          ->Create(Shell("a", absl::StrCat("cat ", fifo_, " & echo $! >", pids,
                                           "; exit 5")))
          .ok());
  int child = 0;
  ASSERT_TRUE(absl::SimpleAtoi(*ReadFile(pids), &child));
  EXPECT_EQ(NextAfterRunning().exit_code, 5);
  // Dead, or a zombie that init has not collected yet.
  const Fd pidfd = process::OpenPidfd(child);
  EXPECT_TRUE(!pidfd.valid() || EndsWithinPatience(pidfd.get()));
}

TEST_P(LocalPodBackendTest, ErrorsOfCreateSayWhatIsWrong) {
  PodSpec spec;
  spec.name = "a";
  spec.argv = {"/no/such/program"};
  absl::Status status = backend_->Create(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/program"));

  spec.argv = {"no-such-program-in-path"};
  EXPECT_EQ(backend_->Create(spec).code(), absl::StatusCode::kNotFound);

  spec.argv = {dir_.path()};
  EXPECT_EQ(backend_->Create(spec).code(), absl::StatusCode::kInvalidArgument);

  spec.argv = {};
  EXPECT_EQ(backend_->Create(spec).code(), absl::StatusCode::kInvalidArgument);

  spec.argv = {"sh"};
  spec.log_file = "/no/such/folder/log";
  EXPECT_THAT(std::string(backend_->Create(spec).message()),
              HasSubstr("/no/such/folder/log"));

  ASSERT_TRUE(backend_->Create(Blocker("b")).ok());
  EXPECT_EQ(backend_->Create(Blocker("b")).code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_P(LocalPodBackendTest, ManyPodsAreWatchedAtOnce) {
  constexpr int kPods = 60;
  for (int i = 0; i < kPods; ++i) {
    const std::string name = absl::StrCat("p", i);
    ASSERT_TRUE(backend_
                    ->Create(i % 2 == 0 ? Shell(name, absl::StrCat("exit ", i))
                                        : Blocker(name))
                    .ok());
  }
  for (int i = 1; i < kPods; i += 2) {
    ASSERT_TRUE(backend_->Delete(absl::StrCat("p", i), kPatience).ok());
  }
  std::set<std::string> ended;
  while (ended.size() < kPods) {
    const PodEvent event = Next();
    ASSERT_FALSE(event.name.empty());
    if (event.phase == PodPhase::kRunning) continue;
    EXPECT_TRUE(ended.insert(event.name).second) << "two ends: " << event.name;
  }
}

TEST_P(LocalPodBackendTest, StopKillsAllAndIsFinal) {
  std::vector<Fd> pidfds;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(backend_->Create(Blocker(absl::StrCat("p", i))).ok());
    pidfds.push_back(process::OpenPidfd(Next().pid));
  }
  backend_->Stop();
  for (const Fd& fd : pidfds) EXPECT_TRUE(EndsWithinPatience(fd.get()));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Next().phase, PodPhase::kDeleted);
  EXPECT_EQ(backend_->Create(Blocker("late")).code(),
            absl::StatusCode::kFailedPrecondition);
  backend_->Stop();
}

TEST_P(LocalPodBackendTest, DestructionKillsAll) {
  ASSERT_TRUE(backend_->Create(Blocker("a")).ok());
  const pid_t pid = Next().pid;
  backend_.reset();
  EXPECT_EQ(kill(pid, 0), -1);  // gone and reaped
}

TEST_P(LocalPodBackendTest, SinkMayCreateAndDelete) {
  LocalPodBackend* backend = nullptr;
  Queue<PodEvent> events(10);
  auto made = LocalPodBackend::Start(Options(), [&](const PodEvent& event) {
    if (event.phase == PodPhase::kSucceeded) {
      EXPECT_TRUE(backend->Create(Blocker("second")).ok());
      EXPECT_TRUE(backend->Delete("second", absl::ZeroDuration()).ok());
    }
    events.Push(event);
  });
  ASSERT_TRUE(made.ok());
  backend = made->get();
  ASSERT_TRUE(backend->Create(Shell("first", "exit 0")).ok());
  std::vector<std::string> seen;
  for (int i = 0; i < 4; ++i) {
    const auto event = events.Pop(kPatience);
    ASSERT_TRUE(event.has_value());
    seen.push_back(absl::StrCat(event->name, " ", PodPhaseName(event->phase)));
  }
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre(
                        "first Running", "first Succeeded", "second Running",
                        "second Deleted"));
}

// A master that is SIGKILLed leaves no pod behind.
TEST_P(LocalPodBackendTest, PodsDieWithAKilledParent) {
  backend_.reset();  // fork below needs a process with one thread
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t master = fork();
  ASSERT_GE(master, 0);
  if (master == 0) {
    auto backend =
        LocalPodBackend::Start(Options(), [&](const PodEvent& event) {
          (void)!write(ends[1], &event.pid, sizeof(event.pid));
        });
    if (!backend.ok() || !(*backend)->Create(Blocker("a")).ok()) _exit(1);
    while (true) pause();
  }
  pid_t pod = 0;
  ASSERT_EQ(read(ends[0], &pod, sizeof(pod)), sizeof(pod));
  const Fd pidfd = process::OpenPidfd(pod);
  ASSERT_TRUE(pidfd.valid());
  ASSERT_EQ(kill(master, SIGKILL), 0);
  EXPECT_TRUE(EndsWithinPatience(pidfd.get()));
  waitpid(master, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

// Pods that are children of the master's parent, which is this process.
class ParentTest : public LocalPodBackendTest {
 protected:
  void SetUp() override {
    backend_.reset();  // forks below need a process with one thread
    ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    auto reaper = process::ParentReaper::Create();
    ASSERT_TRUE(reaper.ok());
    reaper_ = *std::move(reaper);
  }
  void TearDown() override {
    backend_.reset();
    reaper_->Reap();
    prctl(PR_SET_CHILD_SUBREAPER, 0);
  }

  LocalPodBackend::Options WithParent(pid_t parent) const {
    LocalPodBackend::Options options = Options();
    options.fork_server_patience = kPatience;
    options.parent = parent;
    options.ended_fd = reaper_->tell_fd();
    return options;
  }
  // Starts a pod in another process, which is killed when the pod runs.
  pid_t CreateInKilledMaster(const std::string& script) {
    const std::string ready = MakeFifo("ready");
    const PodSpec spec =
        Shell("a", absl::StrCat("echo up > ", ready, "; ", script));
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t parent = getpid();
    const pid_t master = fork();
    if (master == 0) {
      auto backend = LocalPodBackend::Start(
          WithParent(parent), [&](const PodEvent& event) {
            (void)!write(ends[1], &event.pid, sizeof(event.pid));
          });
      if (!backend.ok() || !(*backend)->Create(spec).ok()) _exit(1);
      while (true) pause();
    }
    pid_t pod = 0;
    EXPECT_EQ(read(ends[0], &pod, sizeof(pod)), sizeof(pod));
    EXPECT_EQ(*ReadFile(ready), "up\n");
    EXPECT_EQ(kill(master, SIGKILL), 0);
    waitpid(master, nullptr, 0);
    close(ends[0]);
    close(ends[1]);
    return pod;
  }
  void StartBackend() {
    auto backend = LocalPodBackend::Start(
        WithParent(getpid()),
        [this](const PodEvent& event) { events_.Push(event); });
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }

  std::optional<process::ParentReaper> reaper_;
};

TEST_P(ParentTest, PodsOutliveAKilledMasterAndAreAdopted) {
  const pid_t pod = CreateInKilledMaster(absl::StrCat("exec cat ", fifo_));
  ASSERT_GT(pod, 0);
  StartBackend();
  ASSERT_TRUE(backend_->Adopt("a", pod).ok());
  EXPECT_EQ(backend_->Create(Blocker("a")).code(),
            absl::StatusCode::kAlreadyExists);
  ASSERT_EQ(kill(pod, SIGKILL), 0);
  const PodEvent end = Next();
  EXPECT_EQ(end.name, "a");
  EXPECT_EQ(end.phase, PodPhase::kFailed);
  EXPECT_EQ(end.signal, SIGKILL);
  reaper_->Reap();
  EXPECT_EQ(waitpid(pod, nullptr, WNOHANG), -1);
}

TEST_P(ParentTest, TheEndIsKnownOfWhatEndedMeanwhile) {
  const std::string go = MakeFifo("go");
  const pid_t pod =
      CreateInKilledMaster(absl::StrCat("read x < ", go, "; exit 5"));
  ASSERT_GT(pod, 0);
  const Fd pidfd = process::OpenPidfd(pod);
  Fd(open(go.c_str(), O_WRONLY)).Reset();
  ASSERT_TRUE(EndsWithinPatience(pidfd.get()));
  StartBackend();
  ASSERT_TRUE(backend_->Adopt("a", pod).ok());
  const PodEvent end = Next();
  EXPECT_EQ(end.phase, PodPhase::kFailed);
  EXPECT_EQ(end.exit_code, 5);
  EXPECT_EQ(end.signal, 0);
}

TEST_P(ParentTest, AnAdoptedPodIsDeleted) {
  const pid_t pod = CreateInKilledMaster(absl::StrCat("exec cat ", fifo_));
  StartBackend();
  ASSERT_TRUE(backend_->Adopt("a", pod).ok());
  ASSERT_TRUE(backend_->Delete("a", absl::Minutes(1)).ok());
  const PodEvent end = Next();
  EXPECT_EQ(end.phase, PodPhase::kDeleted);
  EXPECT_EQ(end.signal, SIGTERM);
}

TEST_P(ParentTest, OnlyChildrenOfTheParentAreAdopted) {
  StartBackend();
  for (const pid_t pid : {getpid(), getppid(), pid_t{1}, pid_t{1 << 23}}) {
    EXPECT_EQ(backend_->Adopt("a", pid).code(), absl::StatusCode::kNotFound);
  }
}

TEST_P(ParentTest, ItsOwnPodsEndLikeOthers) {
  StartBackend();
  ASSERT_TRUE(backend_->Create(Shell("a", "exit 42")).ok());
  EXPECT_EQ(NextAfterRunning().exit_code, 42);
  ASSERT_TRUE(backend_->Create(Shell("b", "exit 0")).ok());
  EXPECT_EQ(NextAfterRunning().phase, PodPhase::kSucceeded);
  // Stop kills, and knows when it is over.
  ASSERT_TRUE(backend_->Create(Blocker("c")).ok());
  const pid_t pod = Next().pid;
  EXPECT_EQ(getpgid(pod), pod);
  backend_->Stop();
  EXPECT_EQ(Next().phase, PodPhase::kDeleted);
  backend_.reset();
  reaper_->Reap();
  EXPECT_EQ(waitpid(pod, nullptr, WNOHANG), -1);
}

INSTANTIATE_TEST_SUITE_P(AllWays, ParentTest, ::testing::Bool());

// With a fork server.
class ForkServerTest : public LocalPodBackendTest {
 protected:
  // The process that forks, which one pod at least has needed. `pod` has the
  // same arguments for a moment.
  static pid_t Server(pid_t pod) {
    const auto tasks = ListDirectory("/proc/self/task");
    for (const std::string& task : *tasks) {
      const auto children =
          ReadFile(absl::StrCat("/proc/self/task/", task, "/children"));
      for (const auto child : absl::StrSplit(*children, ' ')) {
        const auto line = ReadFile(absl::StrCat("/proc/", child, "/cmdline"));
        pid_t pid = 0;
        if (line.ok() && absl::StrContains(*line, "--fork_server_fd=") &&
            absl::SimpleAtoi(child, &pid) && pid != pod) {
          return pid;
        }
      }
    }
    return 0;
  }
};

TEST_P(ForkServerTest, PodsGoOnWhenItIsKilledAndTheNextGetAnother) {
  const std::string ready = MakeFifo("ready");
  ASSERT_TRUE(backend_
                  ->Create(Shell("a", absl::StrCat("echo up >", ready,
                                                   "; exec cat ", fifo_)))
                  .ok());
  const pid_t first = Next().pid;
  EXPECT_EQ(*ReadFile(ready), "up\n");
  const pid_t server = Server(first);
  ASSERT_GT(server, 0);
  ASSERT_EQ(kill(server, SIGKILL), 0);
  ASSERT_TRUE(backend_->Create(Shell("b", "exit 4")).ok());
  EXPECT_EQ(NextAfterRunning().exit_code, 4);
  ASSERT_TRUE(backend_->Create(Shell("c", "exit 5")).ok());
  EXPECT_EQ(NextAfterRunning().exit_code, 5);
  EXPECT_NE(Server(first), server);
  EXPECT_EQ(kill(first, 0), 0);
  ASSERT_TRUE(backend_->Delete("a", absl::ZeroDuration()).ok());
  EXPECT_EQ(Next().phase, PodPhase::kDeleted);
}

TEST_P(ForkServerTest, OneThatHangsIsGivenUpForADeletedPod) {
  ASSERT_TRUE(backend_->Create(Shell("a", "exit 0")).ok());
  EXPECT_EQ(NextAfterRunning().phase, PodPhase::kSucceeded);
  const pid_t server = Server(0);
  ASSERT_GT(server, 0);
  ASSERT_EQ(kill(server, SIGSTOP), 0);
  const std::string trace = dir_.Path("trace");
  ASSERT_TRUE(backend_->Create(Shell("b", "touch " + trace)).ok());
  ASSERT_TRUE(backend_->Create(Shell("c", "exit 6")).ok());
  ASSERT_TRUE(backend_->Delete("b", absl::ZeroDuration()).ok());
  const PodEvent deleted = Next();
  EXPECT_EQ(deleted.name, "b");
  EXPECT_EQ(deleted.phase, PodPhase::kDeleted);
  EXPECT_EQ(NextAfterRunning().exit_code, 6);
  EXPECT_EQ(access(trace.c_str(), F_OK), -1);
}

INSTANTIATE_TEST_SUITE_P(Ways, ForkServerTest, ::testing::Values(true));

INSTANTIATE_TEST_SUITE_P(Ways, LocalPodBackendTest, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& info) {
                           return info.param ? "ForkServer" : "OneByOne";
                         });

TEST(PodNameTest, IsThatOfTheSeeds) {
  EXPECT_EQ(PodName(PodType::kWorker, "test-mnist", 3),
            "elasticdl-worker-test-mnist-3");
  EXPECT_EQ(PodName(PodType::kPs, "j", 0), "elasticdl-ps-j-0");
  EXPECT_EQ(PodName(PodType::kPs, "j", 0, 2), "elasticdl-ps-j-0-r2");
  EXPECT_EQ(PodAttempt("elasticdl-ps-j-0-r2"), 2);
  EXPECT_EQ(PodAttempt("elasticdl-ps-a-r7-0"), 0);
  EXPECT_EQ(PodAttempt("elasticdl-worker-test-mnist-3"), 0);
}

TEST(PodNameTest, IsParsed) {
  for (const auto& [type, id, attempt] :
       std::vector<std::tuple<PodType, int64_t, int64_t>>{
           {PodType::kWorker, 0, 0},
           {PodType::kWorker, 12345, 0},
           {PodType::kPs, 3, 0},
           {PodType::kPs, 3, 17}}) {
    for (const char* job : {"j", "a-1", "a-r7", "ps-j-1-r2"}) {
      const std::string name = PodName(type, job, id, attempt);
      PodEvent pod;
      ASSERT_TRUE(ParsePodName(name, job, &pod)) << name;
      EXPECT_EQ(pod.name, name);
      EXPECT_EQ(pod.type, type);
      EXPECT_EQ(pod.id, id);
      EXPECT_EQ(pod.attempt, attempt);
    }
  }
  for (const char* name :
       {"", "master", "client", "elasticdl-ps-j", "elasticdl-ps-j-",
        "elasticdl-ps-j-x", "elasticdl-ps-j-1-r", "elasticdl-ps-j-1-x",
        "elasticdl-ps-j-01", "elasticdl-worker-k-1", "elasticdl-ps-j-1-r0"}) {
    PodEvent pod;
    EXPECT_FALSE(ParsePodName(name, "j", &pod)) << name;
  }
}

}  // namespace
}  // namespace elasticdl::master
