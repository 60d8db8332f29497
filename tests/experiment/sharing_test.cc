#include "elasticdl/experiment/sharing.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace elasticdl::experiment {
namespace {

using ::testing::ElementsAre;

constexpr Divider kHere = Divider::kExperiment;

SharedJob Job(double arrives, int64_t workers, int64_t min = 1) {
  SharedJob job;
  job.arrives = arrives;
  job.workers = workers;
  job.min_workers = min;
  return job;
}

TEST(SharingTest, ElasticStartsWithWhatIsLeft) {
  const Sharing sharing = {6, {Job(0, 4), Job(8, 4)}, {}};
  const SharedState running = {JobPhase::kRunning, 4};
  EXPECT_THAT(
      Allocate(sharing, kElastic, kHere, 8, {running, {JobPhase::kWaiting, 0}}),
      ElementsAre(4, 2));
  EXPECT_THAT(Allocate(sharing, kElastic, kHere, 20,
                       {{JobPhase::kDone, 0}, {JobPhase::kRunning, 2}}),
              ElementsAre(0, 4));
}

TEST(SharingTest, AGangWaitsForAllOfIt) {
  const Sharing sharing = {6, {Job(0, 4), Job(8, 4)}, {}};
  EXPECT_THAT(Allocate(sharing, kGang, kHere, 8,
                       {{JobPhase::kRunning, 4}, {JobPhase::kWaiting, 0}}),
              ElementsAre(4, 0));
  EXPECT_THAT(Allocate(sharing, kGang, kHere, 20,
                       {{JobPhase::kDone, 0}, {JobPhase::kWaiting, 0}}),
              ElementsAre(0, 4));
}

TEST(SharingTest, AGangNeverPassesAnEarlierOne) {
  const Sharing sharing = {6, {Job(0, 4), Job(1, 4), Job(2, 1)}, {}};
  EXPECT_THAT(Allocate(sharing, kGang, kHere, 3,
                       {{JobPhase::kRunning, 4},
                        {JobPhase::kWaiting, 0},
                        {JobPhase::kWaiting, 0}}),
              ElementsAre(4, 0, 0));
}

TEST(SharingTest, TheServiceComesFirst) {
  const Sharing sharing = {8, {Job(0, 8)}, {{0, 2}, {10, 6}}};
  EXPECT_EQ(ServiceSlots(sharing, 9), 2);
  EXPECT_THAT(Allocate(sharing, kElastic, kHere, 0, {{JobPhase::kWaiting, 0}}),
              ElementsAre(6));
  EXPECT_THAT(Allocate(sharing, kElastic, kHere, 10, {{JobPhase::kRunning, 6}}),
              ElementsAre(2));
  // What is left at the peak.
  EXPECT_THAT(Allocate(sharing, kGang, kHere, 0, {{JobPhase::kWaiting, 0}}),
              ElementsAre(2));
}

TEST(SharingTest, NoMoreThanThereIsAndNobodyStarves) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    Sharing sharing;
    sharing.slots = 1 + static_cast<int64_t>(random() % 12);
    for (uint64_t i = 0; i < 1 + random() % 5; ++i) {
      const auto most = static_cast<uint64_t>(sharing.slots);
      const auto workers = 1 + static_cast<int64_t>(random() % most);
      sharing.jobs.push_back(
          Job(static_cast<double>(random() % 10), workers, 1));
    }
    for (const char* policy : {kElastic, kGang}) {
      std::vector<SharedState> states(sharing.jobs.size(),
                                      {JobPhase::kWaiting, 0});
      size_t done = 0;
      // A job ends per round: all must get their turn.
      for (size_t round = 0; round <= 2 * states.size(); ++round) {
        const auto workers = Allocate(sharing, policy, kHere, 10, states);
        int64_t sum = 0;
        for (size_t i = 0; i < workers.size(); ++i) {
          sum += workers[i];
          ASSERT_LE(workers[i], sharing.jobs[i].workers);
          if (workers[i] > 0) states[i] = {JobPhase::kRunning, workers[i]};
        }
        ASSERT_LE(sum, sharing.slots);
        for (SharedState& state : states) {
          if (state.phase != JobPhase::kRunning) continue;
          state = {JobPhase::kDone, 0};
          ++done;
          break;
        }
      }
      EXPECT_EQ(done, states.size()) << policy;
    }
  }
}

TEST(SharingTest, AClusterDividesItsSlotsItself) {
  Sharing sharing = {6, {Job(0, 4), Job(8, 4)}, {}};
  EXPECT_EQ(DividerOf(sharing, /*on_cluster=*/false), Divider::kExperiment);
  EXPECT_EQ(DividerOf(sharing, /*on_cluster=*/true), Divider::kCluster);
  const SharedState waiting = {JobPhase::kWaiting, 0};
  const SharedState running = {JobPhase::kRunning, 4};
  // Elastic jobs ask for everything at once, before there is room for it.
  EXPECT_THAT(
      Allocate(sharing, kElastic, Divider::kCluster, 8, {running, waiting}),
      ElementsAre(4, 4));
  EXPECT_THAT(Allocate(sharing, kElastic, Divider::kCluster, 7,
                       {running, {JobPhase::kNotArrived, 0}}),
              ElementsAre(4, 0));
  // The scheduler knows nothing of gangs.
  EXPECT_THAT(
      Allocate(sharing, kGang, Divider::kCluster, 8, {running, waiting}),
      ElementsAre(4, 0));
  // It knows nothing of a service that is only a number.
  sharing.service = {{0, 2}};
  EXPECT_EQ(DividerOf(sharing, /*on_cluster=*/true), Divider::kExperiment);
}

TEST(SharingTest, MostAtOnceIgnoresShortOverlaps) {
  EXPECT_EQ(MostAtOnce({}, 3), 0);
  std::vector<TimelinePoint> timeline = {
      {0, "a", 4}, {5, "b", 2}, {10, "b", 4}, {11, "a", 0}, {20, "b", 0}};
  EXPECT_EQ(MostAtOnce(timeline, 3), 6);
  EXPECT_EQ(MostAtOnce(timeline, 1), 8);
  // In any order, and with a change in between that does not go below.
  timeline = {{9, "a", 0}, {2, "b", 3}, {0, "a", 4}, {4, "b", 4}, {6, "b", 3}};
  EXPECT_EQ(MostAtOnce(timeline, 3), 7);
}

TEST(SharingTest, UtilisationIsTheAreaUnderTheTimeline) {
  const std::vector<TimelinePoint> timeline = {
      {0, "a", 4}, {5, "b", 2}, {10, "a", 0}, {20, "b", 0}};
  // 4 for 5 s, 6 for 5 s, 2 for 10 s, of 6 slots for 20 s.
  EXPECT_DOUBLE_EQ(SlotUtilisation(timeline, 6, 0, 20), (20 + 30 + 20) / 120.0);
  EXPECT_EQ(SlotUtilisation(timeline, 6, 3, 3), 0);
}

}  // namespace
}  // namespace elasticdl::experiment
