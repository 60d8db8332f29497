// Membership under thousands of random schedules.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "elasticdl/rendezvous/membership.h"
#include "rendezvous/membership_simulator.h"

namespace elasticdl::rendezvous {
namespace {

// A failure names its seed; run that one alone with kSeeds = 1.
constexpr uint64_t kFirstSeed = 1;
constexpr uint64_t kSeeds = 4000;

TEST(MembershipScheduleTest, HoldsItsPromisesUnderRandomFaults) {
  MembershipSimulator::Counts sum;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    MembershipSimulator simulator(seed);
    simulator.Run();
    const MembershipSimulator::Counts& counts = simulator.counts();
    sum.events += counts.events;
    sum.deaths += counts.deaths;
    sum.active += counts.active;
    sum.switches += counts.switches;
    sum.cold += counts.cold;
    sum.evicted += counts.evicted;
    sum.released += counts.released;
    sum.dissolved += counts.dissolved;
    sum.commits += counts.commits;
    sum.ahead += counts.ahead;
    sum.saved += counts.saved;
    sum.slow_parts += counts.slow_parts;
    sum.silent += counts.silent;
    sum.shrunk += counts.shrunk;
    if (HasFailure()) return;
  }
  const std::string summary = absl::StrCat(
      sum.events, " events, ", sum.deaths, " deaths, ", sum.active, " worlds, ",
      sum.switches, " switches, ", sum.cold, " cold, ", sum.evicted,
      " evicted, ", sum.released, " released, ", sum.dissolved, " dissolved, ",
      sum.commits, " commits, ", sum.ahead, " steps ahead, ", sum.saved,
      " saved, ", sum.slow_parts, " parts of slow loads, ", sum.silent,
      " silent, ", sum.shrunk, " shrunk");
  RecordProperty("summary", summary);
  // The schedules reach everything often.
  SCOPED_TRACE(summary);
  const int64_t often = kSeeds / 10;
  EXPECT_GT(sum.deaths, often);
  EXPECT_GT(sum.active, often);
  EXPECT_GT(sum.shrunk, often);
  EXPECT_GT(sum.switches, often);
  EXPECT_GT(sum.cold, often);
  EXPECT_GT(sum.evicted, often);
  EXPECT_GT(sum.released, often);
  EXPECT_GT(sum.dissolved, often);
  EXPECT_GT(sum.commits, often);
  EXPECT_GT(sum.ahead, often);
  EXPECT_GT(sum.saved, often);
  EXPECT_GT(sum.slow_parts, often);
  EXPECT_GT(sum.silent, 0);
}

}  // namespace
}  // namespace elasticdl::rendezvous
