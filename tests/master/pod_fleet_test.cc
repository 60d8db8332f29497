// Ids, priorities and who goes first, for each kind of pod.
#include "pod_fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

class PodFleetTest : public ::testing::TestWithParam<PodType> {
 protected:
  PodFleet Make(int64_t target) {
    PodFleet::Options options;
    options.rules.type = GetParam();
    options.rules.job_name = "j";
    options.target = target;
    return PodFleet(options);
  }
  void Run(PodFleet& fleet, int64_t id) {
    PodEvent event;
    event.phase = PodPhase::kRunning;
    fleet.FindById(id)->OnAlive(event, At(0), out_);
  }
  void End(PodFleet& fleet, int64_t id) {
    PodEvent event;
    event.phase = PodPhase::kDeleted;
    event.reason = PodEndReason::kDeleted;
    fleet.FindById(id)->OnEnded(event, At(10), out_);
    fleet.Sweep();
    fleet.CreateDue(At(10), out_);
  }
  std::vector<std::string> Shown() {
    std::vector<std::string> shown;
    for (const PodDecision& decision : out_) {
      shown.push_back(absl::StrCat(PodDecisionKindName(decision.kind), " ",
                                   decision.id, "/", decision.attempt));
    }
    out_.clear();
    return shown;
  }

  PodDecisions out_;
};

TEST_P(PodFleetTest, StartsAsManyAsWanted) {
  PodFleet fleet = Make(2);
  EXPECT_TRUE(fleet.empty());
  fleet.Start(At(0), out_);
  EXPECT_THAT(Shown(), ElementsAre("create 0/0", "create 1/0"));
  EXPECT_EQ(fleet.num_active(), 2);
  EXPECT_FALSE(fleet.all_gone());
}

TEST_P(PodFleetTest, AReplacementHasTheIdThatItsKindAsksFor) {
  PodFleet fleet = Make(2);
  fleet.Start(At(0), out_);
  Run(fleet, 0);
  Shown();
  End(fleet, 0);
  EXPECT_THAT(Shown(), ElementsAre("ended 0/0", GetParam() == PodType::kWorker
                                                    ? "create 2/0"
                                                    : "create 0/1"));
}

TEST_P(PodFleetTest, ScalingDownTakesAwayWhatItsKindCanSpare) {
  PodFleet fleet = Make(3);
  fleet.Start(At(0), out_);
  Run(fleet, 0);
  Run(fleet, 2);
  Shown();
  fleet.SetTarget(1, "scaled", At(1), out_);
  // Worker 1 does not run yet; servers are addressed by number.
  EXPECT_THAT(Shown(), GetParam() == PodType::kWorker
                           ? ElementsAre("delete 1/0", "delete 2/0")
                           : ElementsAre("delete 2/0", "delete 1/0"));
  EXPECT_EQ(fleet.num_active(), 1);
}

TEST_P(PodFleetTest, RetiredPodsAreNotReplaced) {
  PodFleet fleet = Make(2);
  fleet.Start(At(0), out_);
  Run(fleet, 0);
  Run(fleet, 1);
  Shown();
  fleet.Retire(
      "done", [](int64_t id) { return id == 0; }, out_);
  EXPECT_THAT(Shown(), ElementsAre("delete 1/0"));
  End(fleet, 0);
  End(fleet, 1);
  EXPECT_THAT(Shown(), ElementsAre("ended 0/0", "ended 1/0"));
  EXPECT_TRUE(fleet.all_gone());
  EXPECT_TRUE(fleet.empty());
}

TEST_P(PodFleetTest, RemoveAllDeletesEachOnce) {
  PodFleet fleet = Make(2);
  fleet.Start(At(0), out_);
  Shown();
  fleet.RemoveAll("stop", out_);
  EXPECT_THAT(Shown(), ElementsAre("delete 0/0", "delete 1/0"));
  fleet.RemoveAll("stop", out_);
  EXPECT_THAT(Shown(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Kinds, PodFleetTest,
                         ::testing::Values(PodType::kWorker, PodType::kPs),
                         [](const auto& info) {
                           return std::string(PodTypeName(info.param));
                         });

}  // namespace
}  // namespace elasticdl::master
