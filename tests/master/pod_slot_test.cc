// PodSlot by its table: each row of pod_slot.h is a test.
#include "pod_slot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = PodDecision::Kind;
using State = PodSlot::State;

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

class PodSlotTest : public ::testing::Test {
 protected:
  PodSlot Make(PodType type = PodType::kWorker) {
    rules_.type = type;
    rules_.job_name = "j";
    return PodSlot(std::make_shared<const SlotRules>(rules_), "high",
                   "start of the job");
  }
  // With a pod of id 0 that was asked for at second 0.
  PodSlot Created(PodType type = PodType::kWorker) {
    PodSlot slot = Make(type);
    slot.Name(0, 0);
    slot.Create(At(0), out_);
    out_.clear();
    return slot;
  }
  PodSlot Running(PodType type = PodType::kWorker) {
    PodSlot slot = Created(type);
    slot.OnAlive(Alive(PodPhase::kRunning), At(0), out_);
    return slot;
  }

  static PodEvent Alive(PodPhase phase, const std::string& message = "") {
    PodEvent event;
    event.phase = phase;
    event.pid = 77;
    event.message = message;
    return event;
  }
  static PodEvent Exit(int code) {
    PodEvent event;
    event.phase = code == 0 ? PodPhase::kSucceeded : PodPhase::kFailed;
    event.reason = code == 0 ? PodEndReason::kNone : PodEndReason::kError;
    event.exit_code = code;
    return event;
  }
  static PodEvent Killed() {
    PodEvent event = Exit(1);
    event.exit_code = -1;
    event.signal = SIGKILL;
    return event;
  }
  // The kinds of what was decided since the last call.
  std::vector<Kind> Kinds() {
    std::vector<Kind> kinds;
    for (const PodDecision& decision : out_) kinds.push_back(decision.kind);
    out_.clear();
    return kinds;
  }

  SlotRules rules_;
  PodDecisions out_;
};

TEST_F(PodSlotTest, IsDueAtOnceAndThenCreating) {
  PodSlot slot = Make();
  EXPECT_TRUE(slot.due(At(0)));
  EXPECT_TRUE(slot.active());
  EXPECT_FALSE(slot.may_exist());
  slot.Name(3, 0);
  slot.Create(At(0), out_);
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(out_[0].kind, Kind::kCreate);
  EXPECT_EQ(out_[0].name, "elasticdl-worker-j-3");
  EXPECT_EQ(out_[0].priority, "high");
  EXPECT_EQ(out_[0].replaces, -1);
  EXPECT_EQ(out_[0].reason, "start of the job");
  EXPECT_EQ(slot.state(), State::kCreating);
  EXPECT_TRUE(slot.may_exist());
  EXPECT_FALSE(slot.due(At(1)));
}

TEST_F(PodSlotTest, CreationThatFailedForNowIsTriedAgainUnderItsName) {
  PodSlot slot = Created();
  slot.OnCreateFailed(absl::UnavailableError("away"), At(0), out_);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kDelayed));
  EXPECT_EQ(slot.state(), State::kWaiting);
  EXPECT_TRUE(slot.may_exist());
  EXPECT_FALSE(slot.due(At(0.5)));
  EXPECT_EQ(slot.next_wake(), At(1));
  ASSERT_TRUE(slot.due(At(1)));
  slot.Create(At(1), out_);
  EXPECT_EQ(out_[0].reason, "try 2");
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kCreate));
  // The same error is reported once.
  slot.OnCreateFailed(absl::UnavailableError("away"), At(1), out_);
  EXPECT_THAT(Kinds(), IsEmpty());
  EXPECT_EQ(slot.next_wake(), At(3));
}

TEST_F(PodSlotTest, APodWhoseCreationWasReportedAsFailedShowsUp) {
  PodSlot slot = Created();
  slot.OnCreateFailed(absl::UnavailableError("lost answer"), At(0), out_);
  slot.OnAlive(Alive(PodPhase::kPending), At(0.1), out_);
  EXPECT_EQ(slot.state(), State::kCreating);
  PodSlot other = Created();
  other.OnCreateFailed(absl::UnavailableError("lost answer"), At(0), out_);
  other.OnAlive(Alive(PodPhase::kRunning), At(0.1), out_);
  EXPECT_EQ(other.state(), State::kRunning);
}

TEST_F(PodSlotTest, CreationThatFailedForGoodIsGivenUp) {
  PodSlot slot = Created();
  slot.OnCreateFailed(absl::NotFoundError("no such program"), At(0), out_);
  EXPECT_THAT(out_[0].reason, HasSubstr("no such program"));
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kGaveUp));
  EXPECT_EQ(slot.state(), State::kGaveUp);
  EXPECT_FALSE(slot.active());
  EXPECT_FALSE(slot.may_exist());
}

TEST_F(PodSlotTest, ALateCreateErrorDoesNotHurtARunningPod) {
  PodSlot slot = Running();
  slot.OnCreateFailed(absl::UnavailableError("late"), At(1), out_);
  EXPECT_THAT(Kinds(), IsEmpty());
  EXPECT_EQ(slot.state(), State::kRunning);
}

TEST_F(PodSlotTest, HangsWithoutAttaching) {
  rules_.attach_timeout = absl::Seconds(60);
  PodSlot slot = Running();
  EXPECT_EQ(slot.next_wake(), At(60));
  slot.OnTimer(
      At(59), [](int64_t) { return false; }, out_);
  EXPECT_THAT(Kinds(), IsEmpty());
  slot.OnTimer(
      At(60), [](int64_t) { return false; }, out_);
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(out_[0].grace, absl::ZeroDuration());
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kDelete));
  EXPECT_EQ(slot.state(), State::kRunning);
  EXPECT_EQ(slot.info().state, "Terminating");
  slot.OnEnded(Killed(), At(61), out_);
  EXPECT_FALSE(out_[0].process_failure);
  EXPECT_FALSE(out_[0].asked);
  EXPECT_TRUE(out_[0].deleted);
  EXPECT_THAT(out_[0].reason, HasSubstr("deleted ("));
  EXPECT_THAT(out_[0].reason, HasSubstr("SIGKILL"));
  EXPECT_EQ(slot.state(), State::kWaiting);
  EXPECT_EQ(slot.info().failures, 0);
}

// Writing its core file took longer than anybody waited.
TEST_F(PodSlotTest, WasCrashingWhenItWasKilled) {
  PodSlot slot = Running();
  slot.Kill("does not answer", out_);
  PodEvent crashed = Killed();
  crashed.signal = SIGSEGV;
  crashed.phase = PodPhase::kDeleted;
  crashed.reason = PodEndReason::kDeleted;
  slot.OnEnded(crashed, At(61), out_);
  EXPECT_TRUE(out_.back().process_failure);
  EXPECT_EQ(slot.info().failures, 1);
}

TEST_F(PodSlotTest, CrashesWhenItIsAskedToEnd) {
  PodSlot slot = Running();
  slot.Remove("scaled down", out_);
  PodEvent crashed = Killed();
  crashed.signal = SIGSEGV;
  slot.OnEnded(crashed, At(61), out_);
  EXPECT_FALSE(out_.back().process_failure);
  EXPECT_EQ(slot.info().failures, 0);
}

TEST_F(PodSlotTest, EndsAndItsPlaceIsFilled) {
  PodSlot slot = Running();
  slot.OnEnded(Killed(), At(10), out_);
  EXPECT_FALSE(out_[0].deleted);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kEnded));
  EXPECT_EQ(slot.state(), State::kWaiting);
  EXPECT_FALSE(slot.may_exist());
  ASSERT_TRUE(slot.due(At(10)));
  slot.Name(5, 0);
  slot.Create(At(10), out_);
  EXPECT_EQ(out_[0].replaces, 0);
  EXPECT_EQ(out_[0].id, 5);
  EXPECT_THAT(out_[0].reason, HasSubstr("SIGKILL"));
}

TEST_F(PodSlotTest, FailsTooOften) {
  rules_.max_failures = 1;
  PodSlot slot = Running();
  slot.OnEnded(Exit(1), At(10), out_);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kEnded));
  slot.Name(1, 0);
  slot.Create(At(10), out_);
  out_.clear();
  slot.OnEnded(Exit(1), At(20), out_);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kEnded, Kind::kGaveUp));
  EXPECT_EQ(slot.state(), State::kGaveUp);
}

TEST_F(PodSlotTest, AForgivenFailureDoesNotCountOnce) {
  rules_.max_failures = 0;
  PodSlot slot = Running();
  slot.ForgiveFailure();
  slot.OnEnded(Exit(1), At(10), out_);
  EXPECT_TRUE(out_[0].process_failure);
  EXPECT_EQ(slot.state(), State::kWaiting);
  slot.Name(1, 0);
  slot.Create(At(10), out_);
  slot.OnEnded(Exit(1), At(20), out_);
  EXPECT_EQ(slot.state(), State::kGaveUp);
}

TEST_F(PodSlotTest, ExitZeroEndsAWorkerButNotAServer) {
  PodSlot worker = Running();
  worker.OnEnded(Exit(0), At(10), out_);
  EXPECT_EQ(worker.state(), State::kDone);
  EXPECT_FALSE(worker.active());
  PodSlot leaving = Running();
  leaving.NoteLeaving();
  leaving.OnEnded(Exit(0), At(10), out_);
  EXPECT_EQ(leaving.state(), State::kWaiting);
  PodSlot server = Running(PodType::kPs);
  server.OnEnded(Exit(0), At(10), out_);
  EXPECT_EQ(server.state(), State::kWaiting);
}

TEST_F(PodSlotTest, AServersContainerThatCrashesInItsPodCounts) {
  rules_.max_failures = 1;
  const auto restarted = [](int64_t times, bool failure) {
    PodEvent event = Alive(PodPhase::kRunning);
    event.restarts = times;
    event.restart_reason = failure ? "exit code 3" : "exit code 137";
    event.restart_failure = failure;
    return event;
  };
  PodSlot server = Running(PodType::kPs);
  server.OnAlive(restarted(1, /*failure=*/false), At(1), out_);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kDelayed));
  EXPECT_EQ(server.info().failures, 0);
  // The same again is no news.
  server.OnAlive(restarted(1, /*failure=*/false), At(2), out_);
  EXPECT_THAT(Kinds(), IsEmpty());
  server.OnAlive(restarted(2, /*failure=*/true), At(3), out_);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kDelayed));
  server.OnAlive(restarted(3, /*failure=*/true), At(4), out_);
  ASSERT_THAT(out_, testing::SizeIs(1));
  EXPECT_THAT(out_[0].reason, HasSubstr("exit code 3; failure 2"));
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kGaveUp));
  // Its pod is deleted with the others.
  server.Remove("the job is ending", out_);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kDelete));
  EXPECT_EQ(server.state(), State::kGone);
  // What happened under another master does not count.
  PodEvent pod = restarted(5, /*failure=*/true);
  pod.name = "elasticdl-ps-j-0";
  pod.id = 0;
  PodSlot adopted(std::make_shared<const SlotRules>(rules_), pod);
  adopted.OnAlive(pod, At(0), out_);
  EXPECT_THAT(Kinds(), IsEmpty());
}

TEST_F(PodSlotTest, IsRemovedWhenItsPodHasEnded) {
  PodSlot slot = Running();
  slot.Remove("scaled down", out_);
  EXPECT_EQ(out_[0].grace, rules_.delete_grace);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kDelete));
  EXPECT_EQ(slot.state(), State::kRunning);
  EXPECT_FALSE(slot.active());
  slot.Remove("again", out_);
  EXPECT_THAT(Kinds(), IsEmpty());
  slot.OnEnded(Exit(1), At(10), out_);
  EXPECT_FALSE(out_[0].process_failure);
  EXPECT_TRUE(out_[0].asked);
  EXPECT_THAT(out_[0].reason, HasSubstr("scaled down"));
  EXPECT_EQ(slot.state(), State::kGone);
}

TEST_F(PodSlotTest, WithoutAPodItIsRemovedAtOnce) {
  PodSlot slot = Running();
  slot.OnEnded(Killed(), At(10), out_);
  out_.clear();
  slot.Remove("scaled down", out_);
  EXPECT_THAT(Kinds(), IsEmpty());
  EXPECT_EQ(slot.state(), State::kGone);
  // A pod that may exist is deleted, and nobody waits for it.
  PodSlot refused = Created();
  refused.OnCreateFailed(absl::UnavailableError("away"), At(0), out_);
  out_.clear();
  refused.Remove("scaled down", out_);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kDelete));
  EXPECT_EQ(refused.state(), State::kGone);
}

TEST_F(PodSlotTest, ReadmittedItGetsASuccessorWithoutAFailure) {
  PodSlot server = Running(PodType::kPs);
  server.Remove("scaled down", out_);
  server.Readmit();
  EXPECT_TRUE(server.active());
  server.OnEnded(Exit(1), At(1), out_);
  EXPECT_EQ(server.state(), State::kWaiting);
  EXPECT_TRUE(server.due(At(1)));
  EXPECT_EQ(server.info().failures, 0);
  server.Name(0, 1);
  EXPECT_EQ(server.name(), "elasticdl-ps-j-0-r1");
}

TEST_F(PodSlotTest, AnAdoptedPodHasProvedItself) {
  rules_.job_name = "j";
  PodEvent pod = Alive(PodPhase::kRunning);
  pod.name = "elasticdl-worker-j-4";
  pod.id = 4;
  pod.priority = "low";
  PodSlot slot(std::make_shared<const SlotRules>(rules_), pod);
  EXPECT_EQ(slot.state(), State::kRunning);
  EXPECT_EQ(slot.id(), 4);
  EXPECT_EQ(slot.priority(), "low");
  EXPECT_TRUE(slot.may_exist());
  slot.OnEnded(Killed(), At(0), out_);
  EXPECT_TRUE(slot.due(At(0)));
}

// It may have announced to leave to the master that was killed.
TEST_F(PodSlotTest, AnAdoptedWorkerThatEndsInOrderIsReplaced) {
  PodEvent end;
  end.phase = PodPhase::kSucceeded;
  end.exit_code = 0;
  rules_.job_name = "j";
  PodEvent pod = Alive(PodPhase::kRunning);
  pod.name = "elasticdl-worker-j-4";
  pod.id = 4;
  {
    PodSlot slot(std::make_shared<const SlotRules>(rules_), pod);
    slot.OnEnded(end, At(0), out_);
    EXPECT_TRUE(slot.due(At(0)));
    // The next one was made here.
    slot.Name(5, 0);
    slot.Create(At(0), out_);
    slot.OnAlive(Alive(PodPhase::kRunning), At(0), out_);
    slot.OnEnded(end, At(9), out_);
    EXPECT_EQ(slot.state(), State::kDone);
  }
  // A command that has ended has done its work.
  rules_.exit_zero_is_done = true;
  PodSlot command(std::make_shared<const SlotRules>(rules_), pod);
  command.OnEnded(end, At(0), out_);
  EXPECT_EQ(command.state(), State::kDone);
}

// A node may refuse pods for hours (UnexpectedAdmissionError).
TEST_F(PodSlotTest, PodsThatTheirNodeRefusesComeLessAndLessOften) {
  PodEvent refused;
  refused.phase = PodPhase::kFailed;
  refused.reason = PodEndReason::kEvicted;
  refused.refused = true;
  PodSlot slot = Created();
  double now = 0;
  int tries = 0;
  for (; now < 600; ++tries) {
    slot.OnEnded(refused, At(now), out_);
    ASSERT_EQ(slot.state(), State::kWaiting) << "it is no failure";
    now = std::max(now, absl::ToDoubleSeconds(slot.next_wake() - At(0)));
    slot.Name(10 + tries, 0);
    slot.Create(At(now), out_);
  }
  EXPECT_GT(tries, 10);
  EXPECT_LT(tries, 40);
}

TEST_F(PodSlotTest, EachReasonOfAPendingPodIsReportedOnce) {
  PodSlot slot = Created();
  for (const char* reason : {"ErrImagePull", "BackOff", "ErrImagePull"}) {
    slot.OnAlive(Alive(PodPhase::kPending, reason), At(1), out_);
  }
  ASSERT_EQ(out_.size(), 2u);
  EXPECT_EQ(out_[0].reason, "Pending: ErrImagePull");
  EXPECT_EQ(out_[0].at, absl::InfiniteFuture());
  EXPECT_EQ(out_[1].reason, "Pending: BackOff");
}

}  // namespace
}  // namespace elasticdl::master
