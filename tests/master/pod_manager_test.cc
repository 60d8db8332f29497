// PodManager by tables: each way to end, scaling, backoff, outcomes.
#include "pod_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = PodDecision::Kind;
using Decisions = PodManager::Decisions;

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

std::string Name(int64_t id) { return PodName(PodType::kWorker, "j", id); }

PodEvent Running(int64_t id) {
  PodEvent event;
  event.name = Name(id);
  event.phase = PodPhase::kRunning;
  event.pid = static_cast<pid_t>(1000 + id);
  return event;
}

PodEvent Exit(int64_t id, int code) {
  PodEvent event;
  event.name = Name(id);
  event.phase = code == 0 ? PodPhase::kSucceeded : PodPhase::kFailed;
  event.reason = code == 0 ? PodEndReason::kNone : PodEndReason::kError;
  event.exit_code = code;
  return event;
}

PodEvent Killed(int64_t id, int signal) {
  PodEvent event = Exit(id, 1);
  event.exit_code = -1;
  event.signal = signal;
  return event;
}

PodEvent Ended(int64_t id, PodPhase phase, PodEndReason reason, int code) {
  PodEvent event = Exit(id, 1);
  event.phase = phase;
  event.reason = reason;
  event.exit_code = code;
  return event;
}

// "create 2", "delete 0", …; checks that each has a reason.
std::vector<std::string> Show(const Decisions& decisions) {
  std::vector<std::string> shown;
  for (const PodDecision& decision : decisions) {
    EXPECT_FALSE(decision.reason.empty())
        << PodDecisionKindName(decision.kind) << " without a reason";
    EXPECT_EQ(decision.name, Name(decision.id));
    shown.push_back(
        absl::StrCat(PodDecisionKindName(decision.kind), " ", decision.id));
  }
  return shown;
}

PodManagerOptions Options(int64_t workers, int64_t relaunches = 1) {
  PodManagerOptions options;
  options.job_name = "j";
  options.num_workers = workers;
  options.relaunch_on_worker_failure = relaunches;
  return options;
}

// A manager whose first pods run since second 0.
PodManager Started(const PodManagerOptions& options) {
  PodManager manager(options);
  manager.Start(At(0));
  for (int64_t id = 0; id < options.num_workers; ++id) {
    manager.OnPodEvent(Running(id), At(0));
  }
  return manager;
}

TEST(PodManagerTest, StartsTheWorkers) {
  PodManager manager(Options(3));
  EXPECT_THAT(Show(manager.Start(At(0))),
              ElementsAre("create 0", "create 1", "create 2"));
  EXPECT_THAT(Show(manager.Start(At(0))), IsEmpty());
  EXPECT_EQ(manager.pods()[1].state, "Pending");
  EXPECT_THAT(Show(manager.OnPodEvent(Running(1), At(1))), IsEmpty());
  EXPECT_EQ(manager.pods()[1].state, "Running");
  EXPECT_EQ(manager.pods()[1].pid, 1001);
  EXPECT_EQ(manager.next_wake(), absl::InfiniteFuture());
}

struct EndCase {
  const char* what;
  PodEvent event;
  bool failure;
};

TEST(PodManagerTest, TakenAwayIsAlwaysRelaunchedAndNeverAFailure) {
  const EndCase cases[] = {
      {"deleted", Ended(0, PodPhase::kDeleted, PodEndReason::kDeleted, -1),
       false},
      {"deleted, exit 0",
       Ended(0, PodPhase::kDeleted, PodEndReason::kDeleted, 0), false},
      {"preempted", Ended(0, PodPhase::kFailed, PodEndReason::kPreempted, 143),
       false},
      {"evicted", Ended(0, PodPhase::kFailed, PodEndReason::kEvicted, -1),
       false},
      {"SIGKILL", Killed(0, 9), false},
      {"exit 137", Exit(0, 137), false},
      {"SIGTERM", Killed(0, 15), false},
      {"exit 143", Exit(0, 143), false},
      {"exit 1", Exit(0, 1), true},
      {"SIGSEGV", Killed(0, 11), true},
      {"OOM", Ended(0, PodPhase::kFailed, PodEndReason::kOomKilled, 137), true},
  };
  for (const EndCase& c : cases) {
    SCOPED_TRACE(c.what);
    PodManager manager = Started(Options(1, /*relaunches=*/0));
    const Decisions out = manager.OnPodEvent(c.event, At(100));
    ASSERT_GE(out.size(), 2u);
    EXPECT_EQ(out[0].kind, Kind::kEnded);
    EXPECT_EQ(out[0].process_failure, c.failure);
    if (c.failure) {
      EXPECT_THAT(Show(out), ElementsAre("ended 0", "gave_up 0"));
      EXPECT_EQ(manager.outcome().state, JobState::kFailed);
    } else {
      EXPECT_THAT(Show(out), ElementsAre("ended 0", "create 1"));
      EXPECT_EQ(out[1].replaces, 0);
      EXPECT_EQ(manager.outcome().state, JobState::kRunning);
    }
  }
}

TEST(PodManagerTest, FailuresAreLimitedPerLineage) {
  PodManager manager = Started(Options(2, /*relaunches=*/2));
  EXPECT_THAT(Show(manager.OnPodEvent(Exit(0, 1), At(100))),
              ElementsAre("ended 0", "create 2"));
  manager.OnPodEvent(Running(2), At(100));
  // Another lineage has its own count.
  EXPECT_THAT(Show(manager.OnPodEvent(Exit(1, 1), At(200))),
              ElementsAre("ended 1", "create 3"));
  manager.OnPodEvent(Running(3), At(200));
  // A preemption between two failures neither counts nor resets.
  EXPECT_THAT(Show(manager.OnPodEvent(Killed(2, 9), At(300))),
              ElementsAre("ended 2", "create 4"));
  manager.OnPodEvent(Running(4), At(300));
  EXPECT_THAT(Show(manager.OnPodEvent(Exit(4, 3), At(400))),
              ElementsAre("ended 4", "create 5"));
  manager.OnPodEvent(Running(5), At(400));
  EXPECT_THAT(Show(manager.OnPodEvent(Exit(5, 3), At(500))),
              ElementsAre("ended 5", "gave_up 5"));
  // One worker remains: the job goes on.
  EXPECT_EQ(manager.outcome().state, JobState::kRunning);
  manager.OnPodEvent(Exit(3, 7), At(600));
  manager.OnPodEvent(Running(6), At(600));
  EXPECT_THAT(Show(manager.OnPodEvent(Exit(6, 7), At(700))),
              ElementsAre("ended 6", "gave_up 6"));
  EXPECT_EQ(manager.outcome().state, JobState::kFailed);
  EXPECT_THAT(manager.outcome().reason, HasSubstr("exit code 7"));
  EXPECT_THAT(manager.outcome().reason, HasSubstr(Name(6)));
  EXPECT_THAT(manager.outcome().reason,
              HasSubstr("--relaunch_on_worker_failure"));
  EXPECT_TRUE(manager.all_gone());
}

TEST(PodManagerTest, WithoutRelaunchAPlaceStaysEmpty) {
  const PodEvent ends[] = {
      Exit(0, 1), Killed(0, SIGKILL),
      Ended(0, PodPhase::kFailed, PodEndReason::kPreempted, 143),
      Ended(0, PodPhase::kDeleted, PodEndReason::kDeleted, -1)};
  for (const PodEvent& end : ends) {
    PodManagerOptions options = Options(2, 5);
    options.relaunch = false;
    PodManager manager = Started(options);
    const Decisions decisions = manager.OnPodEvent(end, At(60));
    EXPECT_THAT(Show(decisions), ElementsAre("ended 0", "gave_up 0"));
    EXPECT_THAT(decisions[1].reason, HasSubstr("disable_relaunch=true"));
    EXPECT_EQ(manager.next_wake(), absl::InfiniteFuture());
    EXPECT_EQ(manager.outcome().state, JobState::kRunning);
    manager.OnPodEvent(Exit(1, 1), At(61));
    EXPECT_EQ(manager.outcome().state, JobState::kFailed);
    EXPECT_THAT(manager.outcome().reason, HasSubstr("disable_relaunch"));
  }
}

TEST(PodManagerTest, RepeatedAndLateEventsAreIgnored) {
  PodManager manager = Started(Options(1));
  EXPECT_THAT(Show(manager.OnPodEvent(Killed(0, 9), At(100))),
              ElementsAre("ended 0", "create 1"));
  EXPECT_THAT(Show(manager.OnPodEvent(Killed(0, 9), At(100))), IsEmpty());
  EXPECT_THAT(Show(manager.OnPodEvent(Running(0), At(100))), IsEmpty());
  EXPECT_THAT(Show(manager.OnPodEvent(Exit(77, 1), At(100))), IsEmpty());
  EXPECT_EQ(manager.IdOf(Name(0)), -1);
  EXPECT_EQ(manager.IdOf(Name(1)), 1);
}

TEST(PodManagerTest, FailureBeforeRunningCounts) {
  PodManager manager(Options(1, 0));
  manager.Start(At(0));
  EXPECT_THAT(Show(manager.OnPodEvent(Exit(0, 2), At(0))),
              ElementsAre("ended 0", "gave_up 0"));
}

TEST(PodManagerTest, CrashLoopWaitsLongerAndLonger) {
  PodManager manager(Options(1));
  absl::Time now = At(0);
  int64_t id = 0;
  manager.Start(now);
  std::vector<double> delays;
  for (int i = 0; i < 9; ++i) {
    manager.OnPodEvent(Running(id), now);
    manager.OnPodEvent(Killed(id, 9), now);
    const bool at_once = manager.next_wake() == absl::InfiniteFuture();
    delays.push_back(
        at_once ? 0 : absl::ToDoubleSeconds(manager.next_wake() - now));
    if (!at_once) {
      EXPECT_THAT(
          Show(manager.OnTimer(manager.next_wake() - absl::Milliseconds(1))),
          IsEmpty());
      now = manager.next_wake();
      EXPECT_THAT(Show(manager.OnTimer(now)),
                  ElementsAre(absl::StrCat("create ", id + 1)));
    }
    ++id;
  }
  EXPECT_THAT(delays, ElementsAre(0, 1, 2, 4, 8, 16, 30, 30, 30));
  // A run of five seconds ends the loop.
  manager.OnPodEvent(Running(id), now);
  EXPECT_THAT(
      Show(manager.OnPodEvent(Killed(id, 9), now + absl::Seconds(5))),
      ElementsAre(absl::StrCat("ended ", id), absl::StrCat("create ", id + 1)));
}

TEST(PodManagerTest, ExitZeroIsDoneUnlessItWasALeave) {
  PodManager manager = Started(Options(2));
  manager.NoteLeaving(0);
  EXPECT_THAT(Show(manager.OnPodEvent(Exit(0, 0), At(100))),
              ElementsAre("ended 0", "create 2"));
  EXPECT_THAT(Show(manager.OnPodEvent(Exit(1, 0), At(100))),
              ElementsAre("ended 1"));
  manager.OnPodEvent(Running(2), At(100));
  EXPECT_EQ(manager.outcome().state, JobState::kRunning);
  manager.OnPodEvent(Exit(2, 0), At(200));
  EXPECT_EQ(manager.outcome().state, JobState::kFailed);
  EXPECT_THAT(manager.outcome().reason, HasSubstr("before the work was done"));
}

TEST(PodManagerTest, CommandsAreDoneWhenAllEndedWithExitCodeZero) {
  PodManagerOptions options = Options(2, 1);
  options.exit_zero_is_done = true;
  PodManager good = Started(options);
  good.OnPodEvent(Exit(0, 0), At(1));
  EXPECT_EQ(good.outcome().state, JobState::kRunning);
  EXPECT_THAT(Show(good.OnPodEvent(Exit(1, 3), At(2))),
              ElementsAre("ended 1", "create 2"));
  good.OnPodEvent(Running(2), At(3));
  good.OnPodEvent(Exit(2, 0), At(4));
  EXPECT_EQ(good.outcome().state, JobState::kSucceeded);
  EXPECT_TRUE(good.all_gone());

  options.relaunch_on_worker_failure = 0;
  PodManager bad = Started(options);
  bad.OnPodEvent(Exit(0, 3), At(1));
  EXPECT_EQ(bad.outcome().state, JobState::kRunning);
  bad.OnPodEvent(Exit(1, 0), At(2));
  EXPECT_EQ(bad.outcome().state, JobState::kFailed);
  EXPECT_THAT(bad.outcome().reason, HasSubstr("exit code 3"));
}

TEST(PodManagerTest, SucceedsWhenWorkIsDoneAndPodsAreGone) {
  PodManager manager = Started(Options(2));
  EXPECT_THAT(Show(manager.SetWorkDone(At(100))), IsEmpty());
  EXPECT_EQ(manager.outcome().state, JobState::kRunning);
  EXPECT_THAT(Show(manager.OnPodEvent(Exit(0, 0), At(100))),
              ElementsAre("ended 0"));
  // No relaunch any more, whatever happens.
  EXPECT_THAT(Show(manager.OnPodEvent(Killed(1, 9), At(100))),
              ElementsAre("ended 1"));
  EXPECT_EQ(manager.outcome().state, JobState::kSucceeded);
  EXPECT_TRUE(manager.all_gone());
  EXPECT_EQ(manager.next_wake(), absl::InfiniteFuture());
}

TEST(PodManagerTest, PendingPodsDoNotHoldUpTheEnd) {
  PodManager manager(Options(2));
  manager.Start(At(0));
  manager.OnPodEvent(Running(0), At(0));
  EXPECT_THAT(Show(manager.SetWorkDone(At(1))), ElementsAre("delete 1"));
  manager.OnPodEvent(Exit(0, 0), At(2));
  manager.OnPodEvent(Ended(1, PodPhase::kDeleted, PodEndReason::kDeleted, -1),
                     At(2));
  EXPECT_EQ(manager.outcome().state, JobState::kSucceeded);
}

TEST(PodManagerTest, ScalesUpAndDown) {
  PodManager manager = Started(Options(2));
  EXPECT_THAT(Show(*manager.SetTarget(4, At(1))),
              ElementsAre("create 2", "create 3"));
  manager.OnPodEvent(Running(2), At(1));
  // Pending 3 goes before running 2, that before 1.
  EXPECT_THAT(Show(*manager.SetTarget(1, At(2))),
              ElementsAre("delete 3", "delete 2", "delete 1"));
  EXPECT_EQ(manager.pods().size(), 4u);
  EXPECT_EQ(manager.pods()[3].state, "Terminating");
  for (const int64_t id : {3, 2, 1}) {
    EXPECT_THAT(
        Show(manager.OnPodEvent(
            Ended(id, PodPhase::kDeleted, PodEndReason::kDeleted, 0), At(3))),
        ElementsAre(absl::StrCat("ended ", id)));
  }
  EXPECT_EQ(manager.pods().size(), 1u);
  EXPECT_EQ(manager.target(), 1);
  // Up again: ids go on.
  EXPECT_THAT(Show(*manager.SetTarget(2, At(4))), ElementsAre("create 4"));
  EXPECT_EQ(manager.SetTarget(0, At(5)).status().code(),
            absl::StatusCode::kInvalidArgument);
  manager.SetWorkDone(At(6));
  EXPECT_EQ(manager.SetTarget(3, At(7)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(PodManagerTest, ScalingUpFillsPlacesThatWereGivenUp) {
  PodManager manager = Started(Options(2, 0));
  manager.OnPodEvent(Exit(0, 1), At(100));
  EXPECT_THAT(Show(*manager.SetTarget(2, At(101))), ElementsAre("create 2"));
}

TEST(PodManagerTest, ScalingDownTakesAWaitingPlaceFirst) {
  PodManager manager = Started(Options(2));
  manager.OnPodEvent(Killed(0, 9), At(1));
  manager.OnPodEvent(Running(2), At(1));
  manager.OnPodEvent(Killed(2, 9), At(1));  // now waits one second
  EXPECT_NE(manager.next_wake(), absl::InfiniteFuture());
  EXPECT_THAT(Show(*manager.SetTarget(1, At(1))), IsEmpty());
  EXPECT_EQ(manager.next_wake(), absl::InfiniteFuture());
}

TEST(PodManagerTest, CreateErrorsAreTriedAgainUnderTheSameName) {
  PodManager manager(Options(1));
  manager.Start(At(0));
  const absl::Status quota = absl::PermissionDeniedError("exceeded quota");
  const Decisions out = manager.CreateFailed(Name(0), quota, At(0));
  EXPECT_THAT(Show(out), ElementsAre("delayed 0"));
  EXPECT_THAT(out[0].reason, HasSubstr("exceeded quota"));
  EXPECT_EQ(out[0].at, At(1));
  EXPECT_THAT(Show(manager.OnTimer(At(1))), ElementsAre("create 0"));
  EXPECT_EQ(manager.CreateFailed(Name(0), quota, At(1))[0].at, At(3));
  // The error was only about the answer: the pod is there.
  manager.OnPodEvent(Running(0), At(2));
  EXPECT_EQ(manager.next_wake(), absl::InfiniteFuture());
  EXPECT_THAT(
      Show(manager.CreateFailed(Name(0), absl::AlreadyExistsError("x"), At(3))),
      IsEmpty());
  EXPECT_EQ(manager.pods()[0].state, "Running");
}

TEST(PodManagerTest, PermanentCreateErrorFailsTheJobWithItsReason) {
  PodManager manager(Options(1, 5));
  manager.Start(At(0));
  EXPECT_THAT(
      Show(manager.CreateFailed(
          Name(0), absl::NotFoundError("start x: no such program"), At(0))),
      ElementsAre("gave_up 0"));
  EXPECT_EQ(manager.outcome().state, JobState::kFailed);
  EXPECT_THAT(manager.outcome().reason, HasSubstr("no such program"));
  EXPECT_TRUE(manager.all_gone());
}

TEST(PodManagerTest, ReplaceDeletesAndRelaunchesWithoutAFailure) {
  PodManager manager = Started(Options(1, 0));
  const Decisions killed = *manager.Replace(0, "hangs", At(100));
  EXPECT_THAT(Show(killed), ElementsAre("delete 0"));
  EXPECT_EQ(killed[0].grace, absl::ZeroDuration());
  EXPECT_THAT(Show(*manager.Replace(0, "hangs", At(100))), IsEmpty());
  // It may even fail while it is being deleted.
  const Decisions out = manager.OnPodEvent(Exit(0, 1), At(101));
  EXPECT_THAT(Show(out), ElementsAre("ended 0", "create 1"));
  EXPECT_FALSE(out[0].process_failure);
  EXPECT_THAT(out[0].reason, HasSubstr("hangs"));
  EXPECT_FALSE(manager.Replace(0, "gone", At(102)).ok());
}

TEST(PodManagerTest, AWorkerThatNeverComesIsReplaced) {
  PodManagerOptions options = Options(2, 0);
  options.attach_timeout = absl::Seconds(60);
  PodManager manager = Started(options);
  const auto attached = [](int64_t id) { return id == 0; };
  const absl::Time due = manager.next_wake();
  EXPECT_THAT(Show(manager.OnTimer(due - absl::Seconds(1), attached)),
              IsEmpty());
  const Decisions hangs = manager.OnTimer(due, attached);
  EXPECT_THAT(Show(hangs), ElementsAre("delete 1"));
  EXPECT_EQ(hangs[0].grace, absl::ZeroDuration());
  // Whoever has come is not asked again.
  EXPECT_EQ(manager.next_wake(), absl::InfiniteFuture());
  const absl::Time later = due + absl::Seconds(1);
  const Decisions out = manager.OnPodEvent(Exit(1, 137), later);
  EXPECT_THAT(Show(out), ElementsAre("ended 1", "create 2"));
  EXPECT_FALSE(out[0].process_failure);
  EXPECT_THAT(out[0].reason, HasSubstr("without coming to the master"));
  // The clock starts when it runs, not while it is pending.
  EXPECT_EQ(manager.next_wake(), absl::InfiniteFuture());
  manager.OnPodEvent(Running(2), later + absl::Hours(1));
  EXPECT_EQ(manager.next_wake(), later + absl::Hours(1) + absl::Seconds(60));
}

TEST(PodManagerTest, WhenTheWorkIsDoneThoseThatNeverCameAreDeleted) {
  PodManager manager = Started(Options(2));
  EXPECT_THAT(
      Show(manager.SetWorkDone(At(1), [](int64_t id) { return id == 0; })),
      ElementsAre("delete 1"));
  manager.OnPodEvent(Exit(0, 0), At(2));
  EXPECT_EQ(manager.outcome().state, JobState::kRunning);
  manager.OnPodEvent(Exit(1, 137), At(2));
  EXPECT_EQ(manager.outcome().state, JobState::kSucceeded);
}

TEST(PodManagerTest, StopDeletesAll) {
  PodManager manager = Started(Options(2));
  EXPECT_THAT(Show(manager.Stop("Ctrl-C", At(1))),
              ElementsAre("delete 0", "delete 1"));
  EXPECT_EQ(manager.outcome().state, JobState::kStopped);
  EXPECT_EQ(manager.outcome().reason, "Ctrl-C");
  EXPECT_FALSE(manager.all_gone());
  manager.OnPodEvent(Killed(0, 9), At(2));
  manager.OnPodEvent(Killed(1, 9), At(2));
  EXPECT_TRUE(manager.all_gone());
  EXPECT_EQ(manager.outcome().state, JobState::kStopped);
}

TEST(PodManagerTest, FailKeepsTheFirstReason) {
  PodManager manager = Started(Options(1));
  manager.Fail("the model throws", At(1));
  manager.Stop("late", At(2));
  EXPECT_EQ(manager.outcome().state, JobState::kFailed);
  EXPECT_EQ(manager.outcome().reason, "the model throws");
}

TEST(PodManagerTest, PrioritiesFollowTheFractionAndAreInherited) {
  PodManagerOptions options = Options(10);
  options.priority = *ParseWorkerPriority("0.5");
  PodManager manager(options);
  std::vector<int64_t> high;
  for (const PodDecision& decision : manager.Start(At(0))) {
    if (decision.priority == "high") high.push_back(decision.id);
  }
  EXPECT_THAT(high, ElementsAre(0, 1, 2, 8, 9));
  EXPECT_EQ(manager.OnPodEvent(Killed(8, 9), At(1))[1].priority, "high");
  EXPECT_EQ(manager.OnPodEvent(Killed(5, 9), At(1))[1].priority, "low");
  const Decisions added = *manager.SetTarget(12, At(2));
  EXPECT_EQ(added[0].priority, "high");  // six of twelve
  EXPECT_EQ(added[1].priority, "low");
}

PodEvent Pending(int64_t id, const std::string& message) {
  PodEvent event;
  event.name = Name(id);
  event.phase = PodPhase::kPending;
  event.message = message;
  return event;
}

TEST(PodManagerTest, PendingPodsAreToldOncePerReasonAndShownAlways) {
  PodManager manager(Options(1));
  manager.Start(At(0));
  EXPECT_THAT(Show(manager.OnPodEvent(Pending(0, ""), At(0))), IsEmpty());
  const std::string full = "0/1 nodes are available: 1 Insufficient cpu.";
  const Decisions told = manager.OnPodEvent(Pending(0, full), At(1));
  EXPECT_THAT(Show(told), ElementsAre("delayed 0"));
  EXPECT_THAT(told[0].reason, HasSubstr(full));
  EXPECT_EQ(told[0].at, absl::InfiniteFuture());
  EXPECT_EQ(manager.pods()[0].message, full);
  EXPECT_EQ(manager.pods()[0].state, "Pending");
  EXPECT_THAT(Show(manager.OnPodEvent(Pending(0, full), At(2))), IsEmpty());
  EXPECT_THAT(Show(manager.OnPodEvent(Pending(0, "ErrImagePull"), At(3))),
              ElementsAre("delayed 0"));
  EXPECT_THAT(Show(manager.OnPodEvent(Pending(0, full), At(4))), IsEmpty());
  EXPECT_EQ(manager.pods()[0].message, full);
  manager.OnPodEvent(Running(0), At(5));
  EXPECT_EQ(manager.pods()[0].message, "");
  // Nothing waits for it, and its successor is told anew.
  EXPECT_EQ(manager.next_wake(), absl::InfiniteFuture());
  manager.OnPodEvent(Killed(0, 9), At(100));
  EXPECT_THAT(Show(manager.OnPodEvent(Pending(1, full), At(101))),
              ElementsAre("delayed 1"));
}

TEST(PodManagerTest, PodsThatTheClusterDeletesShowAsTerminating) {
  PodManager manager = Started(Options(1));
  PodEvent event = Running(0);
  event.terminating = true;
  EXPECT_THAT(Show(manager.OnPodEvent(event, At(1))), IsEmpty());
  EXPECT_EQ(manager.pods()[0].state, "Terminating");
  manager.OnPodEvent(Ended(0, PodPhase::kDeleted, PodEndReason::kDeleted, 143),
                     At(10));
  EXPECT_EQ(manager.pods()[0].name, Name(1));
  EXPECT_EQ(manager.pods()[0].state, "Pending");
}

TEST(PodManagerTest, CreateErrorsThatComeAsEventsAreTriedAgainForEver) {
  const absl::Status errors[] = {absl::ResourceExhaustedError("exceeded quota"),
                                 absl::UnavailableError("no route"),
                                 absl::PermissionDeniedError("no rights")};
  for (const absl::Status& error : errors) {
    PodManager manager(Options(1, /*relaunches=*/0));
    manager.Start(At(0));
    absl::Time now = At(0);
    PodEvent failed;
    failed.name = Name(0);
    failed.create_error = error;
    for (int i = 0; i < 50; ++i) {
      const Decisions out = manager.OnPodEvent(failed, now);
      EXPECT_THAT(Show(out), ElementsAre("delayed 0"));
      EXPECT_LE(out[0].at, now + absl::Seconds(30));
      EXPECT_THAT(manager.pods()[0].message,
                  HasSubstr(std::string(error.message())));
      EXPECT_EQ(manager.pods()[0].state, "Waiting");
      now = manager.next_wake();
      EXPECT_THAT(Show(manager.OnTimer(now)), ElementsAre("create 0"));
    }
    EXPECT_EQ(manager.outcome().state, JobState::kRunning);
    manager.OnPodEvent(Running(0), now);
    EXPECT_EQ(manager.pods()[0].state, "Running");
  }
  PodManager manager(Options(1));
  manager.Start(At(0));
  PodEvent failed;
  failed.name = Name(0);
  failed.create_error = absl::InvalidArgumentError("bad volume");
  EXPECT_THAT(Show(manager.OnPodEvent(failed, At(0))),
              ElementsAre("gave_up 0"));
  EXPECT_THAT(manager.outcome().reason, HasSubstr("bad volume"));
}

TEST(PodManagerTest, PodThatIsThereAfterAllIsNotCreatedAgain) {
  PodManager manager(Options(1));
  manager.Start(At(0));
  manager.CreateFailed(Name(0), absl::DeadlineExceededError("slow"), At(0));
  EXPECT_EQ(manager.pods()[0].state, "Waiting");
  EXPECT_THAT(Show(manager.OnPodEvent(Pending(0, ""), At(0))), IsEmpty());
  EXPECT_EQ(manager.pods()[0].state, "Pending");
  EXPECT_THAT(Show(manager.OnTimer(At(100))), IsEmpty());
}

PodEvent Existing(int64_t id, PodPhase phase,
                  const std::string& priority = "") {
  PodEvent event;
  event.name = Name(id);
  event.id = id;
  event.phase = phase;
  event.priority = priority;
  return event;
}

TEST(PodManagerTest, AdoptsThePodsOfAnEarlierRun) {
  PodManager manager(Options(4));
  std::vector<PodEvent> existing = {
      Existing(9, PodPhase::kFailed), Existing(3, PodPhase::kRunning),
      Existing(7, PodPhase::kPending), Existing(2, PodPhase::kSucceeded)};
  existing[2].message = "no room";
  PodEvent nameless = Existing(-1, PodPhase::kRunning);
  nameless.name = "stranger";
  existing.push_back(nameless);
  PodEvent ps = Existing(5, PodPhase::kRunning);
  ps.type = PodType::kPs;
  existing.push_back(ps);
  manager.Adopt(existing);
  // Two of four are there; ids go on after the highest.
  EXPECT_THAT(Show(manager.Start(At(0))),
              ElementsAre("create 10", "create 11"));
  EXPECT_THAT(Show(manager.Start(At(0))), IsEmpty());
  EXPECT_EQ(manager.pods().size(), 4u);
  EXPECT_EQ(manager.pods()[0].name, Name(3));
  EXPECT_EQ(manager.pods()[0].state, "Running");
  EXPECT_EQ(manager.pods()[1].state, "Pending");
  EXPECT_EQ(manager.pods()[1].message, "no room");
  // They are pods like any other.
  EXPECT_THAT(Show(manager.OnPodEvent(Exit(3, 1), At(1))),
              ElementsAre("ended 3", "create 12"));
}

TEST(PodManagerTest, AdoptedPodsKeepTheirPriorities) {
  PodManagerOptions options = Options(4);
  options.priority = *ParseWorkerPriority("0.5");
  PodManager manager(options);
  manager.Adopt({Existing(0, PodPhase::kRunning, "high"),
                 Existing(1, PodPhase::kRunning, "low")});
  const Decisions added = manager.Start(At(0));
  ASSERT_EQ(added.size(), 2u);
  EXPECT_EQ(added[0].priority, "high");
  EXPECT_EQ(added[1].priority, "low");
  EXPECT_EQ(manager.OnPodEvent(Killed(0, 9), At(100))[1].priority, "high");
}

TEST(PodManagerTest, MoreAdoptedPodsThanWantedAreDeleted) {
  PodManager manager(Options(1));
  manager.Adopt({Existing(0, PodPhase::kRunning),
                 Existing(1, PodPhase::kRunning),
                 Existing(2, PodPhase::kPending)});
  EXPECT_THAT(Show(manager.Start(At(0))), ElementsAre("delete 2", "delete 1"));
}

TEST(PodManagerTest, IdsGoOnAfterARestartOfTheMaster) {
  PodManagerOptions options = Options(2);
  options.first_worker_id = 7;
  PodManager manager(options);
  EXPECT_THAT(Show(manager.Start(At(0))), ElementsAre("create 7", "create 8"));
  EXPECT_EQ(manager.next_worker_id(), 9);
}

}  // namespace
}  // namespace elasticdl::master
