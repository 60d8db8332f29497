// PodManager by tables: each way to end, scaling, backoff, outcomes.
#include "pod_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
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

TEST(PodManagerTest, FailuresAreLimitedPerSlot) {
  PodManager manager = Started(Options(2, /*relaunches=*/2));
  EXPECT_THAT(Show(manager.OnPodEvent(Exit(0, 1), At(100))),
              ElementsAre("ended 0", "create 2"));
  manager.OnPodEvent(Running(2), At(100));
  // Another slot has its own count.
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
  EXPECT_FALSE(manager.Find(Name(0)).has_value());
  ASSERT_TRUE(manager.Find(Name(1)).has_value());
  EXPECT_EQ(manager.Find(Name(1))->id, 1);
}

TEST(PodManagerTest, FailureBeforeRunningCounts) {
  PodManager manager(Options(1, 0));
  manager.Start(At(0));
  EXPECT_THAT(Show(manager.OnPodEvent(Exit(0, 2), At(0))),
              ElementsAre("ended 0", "gave_up 0"));
}

// How long each next pod of a lone worker is waited for when `end` happens to
// it as soon as it runs.
std::vector<double> Delays(
    int times,
    const std::function<void(PodManager&, int64_t id, absl::Time now)>& end) {
  PodManager manager(Options(1, /*relaunches=*/100));
  absl::Time now = At(0);
  manager.Start(now);
  std::vector<double> delays;
  for (int64_t id = 0; id < times; ++id) {
    manager.OnPodEvent(Running(id), now);
    end(manager, id, now);
    const bool at_once = manager.next_wake() == absl::InfiniteFuture();
    delays.push_back(
        at_once ? 0 : absl::ToDoubleSeconds(manager.next_wake() - now));
    if (at_once) continue;
    now = manager.next_wake();
    EXPECT_THAT(Show(manager.OnTimer(now)),
                ElementsAre(absl::StrCat("create ", id + 1)));
  }
  return delays;
}

TEST(PodManagerTest, WhatIsTakenAwayAgainAndAgainIsReplacedWithinASecond) {
  const auto each = [](PodEvent event) {
    return [event](PodManager& manager, int64_t id, absl::Time now) mutable {
      event.name = Name(id);
      manager.OnPodEvent(event, now);
    };
  };
  const auto at_most_a_second = ElementsAre(0, 1, 1, 1, 1, 1, 1);
  EXPECT_THAT(Delays(7, each(Killed(0, 9))), at_most_a_second);
  EXPECT_THAT(Delays(7, each(Killed(0, 15))), at_most_a_second);
  EXPECT_THAT(Delays(7, each(Exit(0, 137))), at_most_a_second);
  EXPECT_THAT(
      Delays(7, each(Ended(0, PodPhase::kDeleted, PodEndReason::kDeleted, -1))),
      at_most_a_second);
  EXPECT_THAT(
      Delays(7, each(Ended(0, PodPhase::kFailed, PodEndReason::kPreempted, 1))),
      at_most_a_second);
  EXPECT_THAT(
      Delays(7, each(Ended(0, PodPhase::kFailed, PodEndReason::kEvicted, 1))),
      at_most_a_second);
  EXPECT_THAT(Delays(7,
                     [](PodManager& manager, int64_t id, absl::Time now) {
                       manager.NoteLeaving(id);
                       manager.OnPodEvent(Exit(id, 0), now);
                     }),
              at_most_a_second);
}

TEST(PodManagerTest, FailuresOfItsOwnWaitLongerAndLonger) {
  const auto longer = ElementsAre(0, 1, 2, 4, 8, 16, 30);
  EXPECT_THAT(
      Delays(7, [](PodManager& manager, int64_t id,
                   absl::Time now) { manager.OnPodEvent(Exit(id, 1), now); }),
      longer);
  // The fault of its task, but it crashes all the same.
  EXPECT_THAT(Delays(7,
                     [](PodManager& manager, int64_t id, absl::Time now) {
                       manager.ForgiveFailure(id);
                       manager.OnPodEvent(Killed(id, 11), now);
                     }),
              longer);
  // It hung, and was killed for that.
  EXPECT_THAT(Delays(7,
                     [](PodManager& manager, int64_t id, absl::Time now) {
                       ASSERT_TRUE(manager.Replace(id, "hangs", now).ok());
                       manager.OnPodEvent(Killed(id, 9), now);
                     }),
              longer);
}

// Being taken away between two crashes does not hide that it crashes.
TEST(PodManagerTest, CrashesAndKillsAreCountedApart) {
  EXPECT_THAT(Delays(8,
                     [](PodManager& manager, int64_t id, absl::Time now) {
                       manager.OnPodEvent(
                           id % 2 == 0 ? Exit(id, 1) : Killed(id, 9), now);
                     }),
              ElementsAre(0, 0, 1, 1, 2, 1, 4, 1));
}

TEST(PodManagerTest, CrashLoopWaitsLongerAndLonger) {
  PodManager manager(Options(1, /*relaunches=*/100));
  absl::Time now = At(0);
  int64_t id = 0;
  manager.Start(now);
  std::vector<double> delays;
  for (int i = 0; i < 9; ++i) {
    manager.OnPodEvent(Running(id), now);
    manager.OnPodEvent(Exit(id, 1), now);
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
      Show(manager.OnPodEvent(Exit(id, 1), now + absl::Seconds(5))),
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
  // Told once; what others see of the pod keeps the reason.
  EXPECT_THAT(Show(manager.CreateFailed(Name(0), quota, At(1))), IsEmpty());
  EXPECT_EQ(manager.next_wake(), At(3));
  const Decisions again = manager.OnTimer(At(3));
  EXPECT_THAT(Show(again), ElementsAre("create 0"));
  EXPECT_THAT(again[0].reason, Not(HasSubstr("quota")));
  EXPECT_THAT(manager.pods()[0].message, HasSubstr("exceeded quota"));
  EXPECT_THAT(Show(manager.CreateFailed(
                  Name(0), absl::UnavailableError("no answer"), At(3))),
              ElementsAre("delayed 0"));
  // The error was only about the answer: the pod is there.
  manager.OnPodEvent(Running(0), At(4));
  EXPECT_EQ(manager.next_wake(), absl::InfiniteFuture());
  EXPECT_THAT(
      Show(manager.CreateFailed(Name(0), absl::AlreadyExistsError("x"), At(5))),
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
  const auto attached = [](PodType, int64_t id) { return id == 0; };
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
      // Told once.
      EXPECT_EQ(out.size(), i == 0 ? 1u : 0u);
      EXPECT_LE(manager.next_wake(), now + absl::Seconds(30));
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

// Parameter servers -----------------------------------------------------------

// Pods by name without "elasticdl-" and the job: "worker-0", "ps-1-r2".
std::string Short(const std::string& name) {
  const size_t type = sizeof("elasticdl-") - 1;
  const size_t job = name.find("-j-");
  return absl::StrCat(name.substr(type, job - type), name.substr(job + 2));
}

std::vector<std::string> ShowPods(const Decisions& decisions) {
  std::vector<std::string> shown;
  for (const PodDecision& decision : decisions) {
    EXPECT_FALSE(decision.reason.empty());
    shown.push_back(absl::StrCat(PodDecisionKindName(decision.kind), " ",
                                 Short(decision.name)));
  }
  return shown;
}

// The event, for a pod of server `id`.
PodEvent OfServer(PodEvent event, int64_t id, int64_t attempt = 0) {
  event.name = PodName(PodType::kPs, "j", id, attempt);
  return event;
}

PodManagerOptions WithServers(int64_t workers, int64_t servers,
                              int64_t relaunches = 1) {
  PodManagerOptions options = Options(workers, relaunches);
  options.num_servers = servers;
  return options;
}

PodManager StartedWithServers(const PodManagerOptions& options) {
  PodManager manager = Started(options);
  for (int64_t id = 0; id < options.num_servers; ++id) {
    manager.OnPodEvent(OfServer(Running(0), id), At(0));
  }
  return manager;
}

TEST(PodManagerServersTest, StartBeforeTheWorkersAndAreShown) {
  PodManagerOptions options = WithServers(2, 2);
  options.server_priority = "high";
  PodManager manager(options);
  const Decisions out = manager.Start(At(0));
  EXPECT_THAT(ShowPods(out), ElementsAre("create ps-0", "create ps-1",
                                         "create worker-0", "create worker-1"));
  EXPECT_EQ(out[1].type, PodType::kPs);
  EXPECT_EQ(out[1].id, 1);
  EXPECT_EQ(out[1].priority, "high");
  EXPECT_EQ(out[2].priority, "");
  ASSERT_EQ(manager.pods().size(), 4u);
  EXPECT_EQ(manager.pods()[0].type, PodType::kPs);
  EXPECT_EQ(manager.pods()[0].state, "Pending");
  manager.OnPodEvent(OfServer(Running(5), 0), At(1));
  EXPECT_EQ(manager.pods()[0].state, "Running");
  EXPECT_EQ(manager.pods()[0].pid, 1005);
  const auto who = manager.Find(PodName(PodType::kPs, "j", 1));
  ASSERT_TRUE(who.has_value());
  EXPECT_EQ(who->type, PodType::kPs);
  EXPECT_EQ(who->id, 1);
}

TEST(PodManagerServersTest, ARelaunchedServerKeepsItsIdUnderANewName) {
  PodManager manager = StartedWithServers(WithServers(1, 2, 0));
  Decisions out = manager.OnPodEvent(OfServer(Killed(0, 9), 1), At(100));
  EXPECT_THAT(ShowPods(out), ElementsAre("ended ps-1", "create ps-1-r1"));
  EXPECT_EQ(out[1].id, 1);
  EXPECT_EQ(out[1].attempt, 1);
  EXPECT_EQ(out[1].replaces, 1);
  manager.OnPodEvent(OfServer(Running(0), 1, 1), At(100));
  // A server that gets SIGTERM ends with exit code 0: it is not "done".
  out = manager.OnPodEvent(OfServer(Exit(0, 0), 1, 1), At(200));
  EXPECT_THAT(ShowPods(out), ElementsAre("ended ps-1-r1", "create ps-1-r2"));
  // Events of the pods before are late.
  EXPECT_THAT(manager.OnPodEvent(OfServer(Exit(0, 1), 1, 1), At(201)),
              IsEmpty());
  // Workers are not concerned, and have ids of their own.
  out = manager.OnPodEvent(Killed(0, 9), At(300));
  EXPECT_THAT(ShowPods(out), ElementsAre("ended worker-0", "create worker-1"));
  EXPECT_EQ(manager.outcome().state, JobState::kRunning);
}

TEST(PodManagerServersTest, AServerThatFailsTooOftenFailsTheJob) {
  PodManager manager = StartedWithServers(WithServers(1, 2, 1));
  EXPECT_THAT(ShowPods(manager.OnPodEvent(OfServer(Exit(0, 1), 0), At(100))),
              ElementsAre("ended ps-0", "create ps-0-r1"));
  manager.OnPodEvent(OfServer(Running(0), 0, 1), At(100));
  const Decisions out = manager.OnPodEvent(OfServer(Exit(0, 7), 0, 1), At(200));
  EXPECT_THAT(ShowPods(out), ElementsAre("ended ps-0-r1", "gave_up ps-0-r1",
                                         "delete worker-0", "delete ps-1"));
  EXPECT_EQ(manager.outcome().state, JobState::kFailed);
  EXPECT_THAT(manager.outcome().reason, HasSubstr("exit code 7"));
  EXPECT_THAT(manager.outcome().reason, HasSubstr("server"));
}

TEST(PodManagerServersTest, AServerThatNeverComesIsReplaced) {
  PodManagerOptions options = WithServers(1, 2);
  options.server_attach_timeout = absl::Seconds(30);
  PodManager manager = StartedWithServers(options);
  const auto attached = [](PodType type, int64_t id) {
    return type == PodType::kWorker || id == 0;
  };
  const absl::Time due = manager.next_wake();
  const Decisions hangs = manager.OnTimer(due, attached);
  EXPECT_THAT(ShowPods(hangs), ElementsAre("delete ps-1"));
}

TEST(PodManagerServersTest, OnlyOwnFailuresWaitLongerAndLonger) {
  PodManager manager(WithServers(1, 1, 100));
  manager.Start(At(0));
  std::vector<double> delays;
  absl::Time now = At(0);
  for (int64_t attempt = 0; attempt < 6; ++attempt) {
    manager.OnPodEvent(OfServer(Running(0), 0, attempt), now);
    const PodEvent end = attempt < 3 ? Killed(0, 9) : Exit(0, 1);
    manager.OnPodEvent(OfServer(end, 0, attempt), now);
    const bool at_once = manager.next_wake() == absl::InfiniteFuture();
    delays.push_back(
        at_once ? 0 : absl::ToDoubleSeconds(manager.next_wake() - now));
    if (at_once) continue;
    now = manager.next_wake();
    EXPECT_THAT(ShowPods(manager.OnTimer(now)),
                ElementsAre(absl::StrCat("create ps-0-r", attempt + 1)));
  }
  EXPECT_THAT(delays, ElementsAre(0, 1, 1, 0, 1, 2));
}

TEST(PodManagerServersTest, StayUntilTheLastWorkerHasEnded) {
  PodManager manager = StartedWithServers(WithServers(2, 2));
  EXPECT_THAT(manager.SetWorkDone(At(1)), IsEmpty());
  EXPECT_THAT(ShowPods(manager.OnPodEvent(Exit(0, 0), At(2))),
              ElementsAre("ended worker-0"));
  // Worker 1 may still save what it holds.
  EXPECT_THAT(ShowPods(manager.OnPodEvent(OfServer(Killed(0, 9), 0), At(2))),
              ElementsAre("ended ps-0", "create ps-0-r1"));
  manager.OnPodEvent(OfServer(Running(0), 0, 1), At(2));
  EXPECT_THAT(ShowPods(manager.OnPodEvent(Exit(1, 0), At(3))),
              ElementsAre("ended worker-1", "delete ps-0-r1", "delete ps-1"));
  EXPECT_EQ(manager.outcome().state, JobState::kRunning);
  manager.OnPodEvent(OfServer(Killed(0, 15), 0, 1), At(4));
  manager.OnPodEvent(OfServer(Exit(0, 0), 1), At(4));
  EXPECT_EQ(manager.outcome().state, JobState::kSucceeded);
  EXPECT_TRUE(manager.all_gone());
}

TEST(PodManagerServersTest, EndWithAStoppedOrFailedJob) {
  PodManager stopped = StartedWithServers(WithServers(1, 1));
  EXPECT_THAT(ShowPods(stopped.Stop("Ctrl-C", At(1))),
              ElementsAre("delete worker-0", "delete ps-0"));
  PodManager failed = StartedWithServers(WithServers(1, 1, 0));
  EXPECT_THAT(ShowPods(failed.OnPodEvent(Exit(0, 1), At(1))),
              ElementsAre("ended worker-0", "gave_up worker-0", "delete ps-0"));
  EXPECT_EQ(failed.outcome().state, JobState::kFailed);
}

TEST(PodManagerServersTest, ScaleByTheirIds) {
  PodManager manager = StartedWithServers(WithServers(1, 2));
  EXPECT_THAT(ShowPods(*manager.SetTarget(4, At(1), PodType::kPs)),
              ElementsAre("create ps-2", "create ps-3"));
  EXPECT_EQ(manager.target(PodType::kPs), 4);
  EXPECT_EQ(manager.target(), 1);
  // The highest ids go, whether they run or not.
  manager.OnPodEvent(OfServer(Running(0), 3), At(1));
  EXPECT_THAT(ShowPods(*manager.SetTarget(2, At(2), PodType::kPs)),
              ElementsAre("delete ps-3", "delete ps-2"));
  // Up again before 3 has ended: its successor waits for that.
  EXPECT_THAT(ShowPods(manager.OnPodEvent(OfServer(Killed(0, 15), 2), At(3))),
              ElementsAre("ended ps-2"));
  EXPECT_THAT(ShowPods(*manager.SetTarget(4, At(4), PodType::kPs)),
              ElementsAre("create ps-2-r1"));
  EXPECT_THAT(ShowPods(manager.OnPodEvent(OfServer(Exit(0, 0), 3), At(5))),
              ElementsAre("ended ps-3", "create ps-3-r1"));
  EXPECT_EQ(manager.SetTarget(0, At(6), PodType::kPs).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PodManagerServersTest, AJobWithoutServersCannotGetAny) {
  PodManager manager = Started(Options(1));
  const auto scaled = manager.SetTarget(1, At(1), PodType::kPs);
  EXPECT_EQ(scaled.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(PodManagerServersTest, AHungServerIsReplaced) {
  PodManager manager = StartedWithServers(WithServers(1, 1, 0));
  EXPECT_EQ(manager.Replace(3, "hangs", At(1), PodType::kPs).status().code(),
            absl::StatusCode::kNotFound);
  const Decisions killed = *manager.Replace(0, "hangs", At(1), PodType::kPs);
  EXPECT_THAT(ShowPods(killed), ElementsAre("delete ps-0"));
  EXPECT_EQ(killed[0].grace, absl::ZeroDuration());
  EXPECT_THAT(ShowPods(manager.OnPodEvent(OfServer(Killed(0, 9), 0), At(2))),
              ElementsAre("ended ps-0", "create ps-0-r1"));
}

TEST(PodManagerServersTest, AreAdoptedWithTheirAttempts) {
  PodManager manager(WithServers(1, 3));
  const auto existing = [](int64_t id, int64_t attempt, PodPhase phase) {
    PodEvent event = OfServer(PodEvent(), id, attempt);
    event.type = PodType::kPs;
    event.id = id;
    event.attempt = attempt;
    event.phase = phase;
    return event;
  };
  manager.Adopt(
      {existing(0, 0, PodPhase::kRunning), existing(1, 0, PodPhase::kFailed),
       existing(1, 2, PodPhase::kFailed), existing(4, 0, PodPhase::kRunning)});
  EXPECT_THAT(ShowPods(manager.Start(At(0))),
              ElementsAre("delete ps-4", "create ps-1-r3", "create ps-2",
                          "create worker-0"));
}

}  // namespace
}  // namespace elasticdl::master
