// Tests of NCCL run on the doubles or on real GPUs, and never on the wrong
// ones.
#include "contracts/gpu_libraries.h"

#include <gmock/gmock.h>

#include "contracts/communicator_fixture.h"

namespace elasticdl::collective {
namespace {

using ::testing::HasSubstr;

GpuLibraries Doubles() {
  GpuLibraries libraries;
  libraries.has_plugin = true;
  libraries.has_doubles = true;
  return libraries;
}

GpuLibraries Real(int gpus) {
  GpuLibraries libraries;
  libraries.wants_real = true;
  libraries.has_plugin = true;
  libraries.num_gpus = gpus;
  return libraries;
}

TEST(GpuLibrariesTest, TheDoublesHaveGpusForAnyWorld) {
  const GpuDecision decision = Decide(Doubles(), false);
  EXPECT_EQ(decision.verdict, GpuVerdict::kRun);
  EXPECT_GE(decision.most_members, 1000);
}

TEST(GpuLibrariesTest, WorldsAreAsLargeAsThereAreGpus) {
  for (const int gpus : {2, 3, 8}) {
    const GpuDecision decision = Decide(Real(gpus), false);
    EXPECT_EQ(decision.verdict, GpuVerdict::kRun) << gpus;
    EXPECT_EQ(decision.most_members, gpus);
  }
}

TEST(GpuLibrariesTest, SkippedWithTheReason) {
  GpuLibraries none = Real(0);
  none.why_no_gpu = "no driver";
  GpuLibraries without = Real(4);
  without.has_plugin = false;
  GpuLibraries without_doubles = Doubles();
  without_doubles.has_plugin = false;
  const auto reason = [](const GpuLibraries& libraries) {
    const GpuDecision decision = Decide(libraries, false);
    EXPECT_EQ(decision.verdict, GpuVerdict::kSkip);
    return decision.reason;
  };
  EXPECT_EQ(reason(none), "there is no GPU: no driver");
  EXPECT_THAT(reason(Real(1)), HasSubstr("two GPUs"));
  EXPECT_EQ(reason(without), "built without NCCL");
  EXPECT_EQ(reason(without_doubles), "built without NCCL");
}

// A pass would say nothing about the libraries that were meant.
TEST(GpuLibrariesTest, TheWrongLibrariesAreAFailure) {
  GpuLibraries doubles = Doubles();
  doubles.has_doubles = false;
  EXPECT_EQ(Decide(doubles, false).verdict, GpuVerdict::kFail);
  GpuLibraries real = Real(2);
  real.has_doubles = true;
  EXPECT_EQ(Decide(real, false).verdict, GpuVerdict::kFail);
  EXPECT_EQ(Decide(real, true).verdict, GpuVerdict::kRun);
}

// This program is linked like those that run everywhere.
TEST(GpuLibrariesTest, ThisProgramHasTheDoubles) {
  EXPECT_FALSE(WantsRealGpus());
  const GpuLibraries& here = FindGpuLibraries();
  EXPECT_FALSE(here.wants_real);
  EXPECT_EQ(here.has_doubles, here.has_plugin);
  int schedules = 0;
  for (const Backend& backend : AllBackends()) {
    if (backend.option == "nccl") ++schedules;
  }
  EXPECT_EQ(schedules, 3);
}

}  // namespace
}  // namespace elasticdl::collective
