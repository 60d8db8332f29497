// One contract for all pod backends. A place where pods run is a PodPlace; each
// test program instantiates the suite for its own ones.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/queue.h"
#include "pod_backend.h"

namespace elasticdl::master {

// Deleting a pod takes seconds, pulling an image may take a minute.
inline constexpr absl::Duration kPodPatience = absl::Seconds(120);

class PodPlace {
 public:
  virtual ~PodPlace() = default;
  // Why there is no such place here; empty: there is.
  virtual std::string WhyNot() const = 0;
  virtual absl::StatusOr<std::unique_ptr<PodBackend>> Start(
      PodEventSink sink) = 0;
  // What somebody else may do to a pod that runs.
  virtual absl::Status TakeAway(const PodEvent& pod) = 0;
};

using PodPlaceFactory = std::unique_ptr<PodPlace> (*)();

class PodBackendContract : public ::testing::TestWithParam<PodPlaceFactory> {
 protected:
  void SetUp() override {
    place_ = GetParam()();
    const std::string why = place_->WhyNot();
    if (!why.empty()) GTEST_SKIP() << why;
  }

  void Start() {
    auto backend =
        place_->Start([this](const PodEvent& event) { events_.Push(event); });
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }

  static std::string Name(int64_t id) {
    return PodName(PodType::kWorker, "contract", id);
  }
  absl::Status Create(int64_t id, const std::string& script) {
    PodSpec spec;
    spec.name = Name(id);
    spec.id = id;
    spec.argv = {"sh", "-c", "eval \"$SCRIPT\""};
    spec.env = {{"SCRIPT", script}};
    return backend_->Create(spec);
  }
  // A pod that leaves cleanly when it is told to.
  absl::Status CreatePolite(int64_t id) {
    return Create(id, "trap 'exit 0' TERM; sleep 1000 & wait");
  }

  // The next event that a reader waits for: one that runs (`final` false) or
  // one that is over. What comes before goes to the log.
  PodEvent Next(bool final) {
    while (auto event = events_.Pop(kPodPatience)) {
      LogInfo(event->name, " ", PodPhaseName(event->phase),
              event->terminating ? " terminating " : " ",
              IsFinal(event->phase) ? DescribePodEnd(*event) : event->message);
      EXPECT_TRUE(event->create_error.ok()) << event->create_error;
      if (IsFinal(event->phase) == final &&
          event->phase != PodPhase::kPending) {
        return *event;
      }
    }
    ADD_FAILURE() << "no such event came";
    return PodEvent();
  }

  std::unique_ptr<PodPlace> place_;
  Queue<PodEvent> events_{10000};
  std::unique_ptr<PodBackend> backend_;
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PodBackendContract);

TEST_P(PodBackendContract, RunsAndSucceeds) {
  Start();
  ASSERT_TRUE(Create(0, "exec sleep 1").ok());
  const PodEvent running = Next(/*final=*/false);
  EXPECT_EQ(running.name, Name(0));
  EXPECT_EQ(running.phase, PodPhase::kRunning);
  const PodEvent end = Next(/*final=*/true);
  EXPECT_EQ(end.phase, PodPhase::kSucceeded);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(end.reason, PodEndReason::kNone);
}

TEST_P(PodBackendContract, ExitCodeIsReported) {
  Start();
  ASSERT_TRUE(Create(0, "exit 3").ok());
  const PodEvent end = Next(/*final=*/true);
  EXPECT_EQ(end.phase, PodPhase::kFailed);
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_EQ(end.reason, PodEndReason::kError);
  EXPECT_TRUE(IsProcessFailure(end));
}

TEST_P(PodBackendContract, DeleteByUs) {
  Start();
  ASSERT_TRUE(CreatePolite(0).ok());
  Next(/*final=*/false);
  ASSERT_TRUE(backend_->Delete(Name(0), absl::Seconds(20)).ok());
  const PodEvent end = Next(/*final=*/true);
  EXPECT_EQ(end.phase, PodPhase::kDeleted);
  EXPECT_EQ(end.reason, PodEndReason::kDeleted);
  EXPECT_EQ(backend_->Delete(Name(0), absl::Seconds(1)).code(),
            absl::StatusCode::kNotFound);
}

TEST_P(PodBackendContract, DeleteOfOneThatDoesNotListen) {
  Start();
  ASSERT_TRUE(Create(0, "trap '' TERM; sleep 1000 & wait; wait").ok());
  Next(/*final=*/false);
  const absl::Time before = Clock::Real().Now();
  ASSERT_TRUE(backend_->Delete(Name(0), absl::Seconds(1)).ok());
  EXPECT_EQ(Next(/*final=*/true).phase, PodPhase::kDeleted);
  EXPECT_LT(Clock::Real().Now() - before, absl::Seconds(30));
}

TEST_P(PodBackendContract, TakenAwayBySomebodyElseIsNoFailure) {
  Start();
  ASSERT_TRUE(CreatePolite(0).ok());
  const absl::Status taken = place_->TakeAway(Next(/*final=*/false));
  ASSERT_TRUE(taken.ok()) << taken;
  const PodEvent end = Next(/*final=*/true);
  EXPECT_FALSE(IsProcessFailure(end)) << DescribePodEnd(end);
}

TEST_P(PodBackendContract, NameThatIsTaken) {
  Start();
  ASSERT_TRUE(CreatePolite(0).ok());
  Next(/*final=*/false);
  EXPECT_EQ(CreatePolite(0).code(), absl::StatusCode::kAlreadyExists);
}

TEST_P(PodBackendContract, StopEndsAll) {
  Start();
  ASSERT_TRUE(CreatePolite(0).ok());
  ASSERT_TRUE(CreatePolite(1).ok());
  Next(/*final=*/false);
  Next(/*final=*/false);
  backend_->Stop();
  EXPECT_EQ(Next(/*final=*/true).phase, PodPhase::kDeleted);
  EXPECT_EQ(Next(/*final=*/true).phase, PodPhase::kDeleted);
  EXPECT_EQ(events_.size(), 0u);
}

}  // namespace elasticdl::master
