#include "record_totals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace elasticdl::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::map<int64_t, int64_t> ToMap(const RecordTotals::Proto& totals) {
  std::map<int64_t, int64_t> map;
  for (const v1::RecordTotal& total : totals) {
    map[total.worker_id()] = total.records();
  }
  return map;
}

RecordTotals::Proto ToProto(const std::map<int64_t, int64_t>& map) {
  RecordTotals::Proto totals;
  for (const auto& [worker_id, records] : map) {
    v1::RecordTotal& total = *totals.Add();
    total.set_worker_id(worker_id);
    total.set_records(records);
  }
  return totals;
}

rendezvous::World WorldOf(std::vector<int64_t> members,
                          std::vector<int64_t> unsettled = {}) {
  rendezvous::World world;
  world.members = std::move(members);
  world.unsettled = std::move(unsettled);
  return world;
}

TEST(RecordTotalsTest, ContinuesFromTheDonorsTotals) {
  RecordTotals totals;
  totals.EnterWorld(ToProto({{3, 30}, {5, 50}}), WorldOf({5, 7}));
  totals.AddRound({1, 2}, /*settled=*/true);
  EXPECT_THAT(ToMap(totals.Settled()), ElementsAre(Pair(5, 51), Pair(7, 2)));
}

TEST(RecordTotalsTest, TheLastRoundIsNotSettledUntilTheNext) {
  RecordTotals totals;
  totals.EnterWorld({}, WorldOf({0, 1}));
  totals.AddRound({4, 4}, /*settled=*/false);
  EXPECT_THAT(ToMap(totals.Settled()), ElementsAre(Pair(0, 0), Pair(1, 0)));
  totals.AddRound({1, 0}, /*settled=*/false);
  EXPECT_THAT(ToMap(totals.Settled()), ElementsAre(Pair(0, 4), Pair(1, 4)));
  totals.AddRound({0, 0}, /*settled=*/true);
  EXPECT_THAT(ToMap(totals.Settled()), ElementsAre(Pair(0, 5), Pair(1, 4)));
}

TEST(RecordTotalsTest, AWorldLeavesAllItsTotals) {
  RecordTotals totals;
  totals.EnterWorld({}, WorldOf({0, 1}));
  totals.AddRound({4, 6}, /*settled=*/false);
  totals.LeaveWorld();
  EXPECT_EQ(totals.Of(1), 6);
  EXPECT_EQ(totals.Of(2), 0);
  EXPECT_THAT(ToMap(totals.All()), ElementsAre(Pair(0, 4), Pair(1, 6)));
  EXPECT_THAT(totals.Settled(), IsEmpty());
  totals.Clear();
  EXPECT_THAT(totals.All(), IsEmpty());
}

TEST(RecordTotalsTest, KeepsOnlyOthersThatTheMasterAsksFor) {
  RecordTotals totals;
  totals.EnterWorld(ToProto({{1, 10}, {2, 20}, {3, 30}}), WorldOf({1}, {3, 9}));
  totals.LeaveWorld();
  EXPECT_THAT(ToMap(totals.All()), ElementsAre(Pair(1, 10), Pair(3, 30)));
}

}  // namespace
}  // namespace elasticdl::worker
