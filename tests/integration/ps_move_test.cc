// The number of parameter servers changes while training goes on: buckets move,
// and processes die on the way. Every record is in the model exactly once.
#include <signal.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/ps_chaos.h"

namespace elasticdl::test {
namespace {

using ::testing::HasSubstr;

class PsMoveTest : public PsChaosTest,
                   public testing::WithParamInterface<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, PsMoveTest, testing::Values(kAsync, kSync),
                         [](const auto& info) { return info.param.name; });

TEST_P(PsMoveTest, MoreAndFewerServers) {
  const auto job = StartPs("move", 2, 2, GetParam().flags);
  Stroll();
  ASSERT_TRUE(WaitForSteps(*job, 10));
  ScaleServers(*job, 3);
  ASSERT_TRUE(WaitForMove(*job, 1, 3)) << job->Output();
  ScaleServers(*job, 1);
  ASSERT_TRUE(WaitForMove(*job, 2, 1)) << job->Output();
  ScaleServers(*job, 2);
  ASSERT_TRUE(WaitForMove(*job, 3, 2)) << job->Output();
  Finish(*job);
  // The process of a server that is not needed ends, and ends well.
  for (const Json& event : job->Events("pod_ended")) {
    EXPECT_EQ(event.at("failure"), false) << event;
  }
}

TEST_P(PsMoveTest, AnotherNumberOnTheWay) {
  const auto job = StartPs("change", 2, 2, GetParam().flags);
  Stroll();
  ASSERT_TRUE(WaitForSteps(*job, 10));
  ScaleServers(*job, 4);
  ScaleServers(*job, 1);
  ScaleServers(*job, 3);
  ASSERT_TRUE(WaitForMove(*job, 1, 3)) << job->Output();
  Finish(*job);
}

TEST_P(PsMoveTest, WorkersComeAndDieMeanwhile) {
  const auto job = StartPs("workers", 2, 2, GetParam().flags);
  Stroll();
  ASSERT_TRUE(WaitForSteps(*job, 10));
  ScaleServers(*job, 3);
  Kill(*job, "worker", 0);
  ASSERT_TRUE(WaitForReady(*job, 2));
  Kill(*job, "worker", 1);
  ASSERT_TRUE(WaitForMove(*job, 1, 3)) << job->Output();
  Finish(*job);
}

TEST_P(PsMoveTest, ServersDieMeanwhile) {
  const auto job = StartPs("servers", 2, 2, GetParam().flags);
  Stroll();
  ASSERT_TRUE(WaitForSteps(*job, 10));
  ScaleServers(*job, 3);
  Kill(*job, "ps", 0);
  Kill(*job, "ps", 1);
  ASSERT_TRUE(WaitForMove(*job, 1, 3)) << job->Output();
  Kill(*job, "ps", 2);
  ScaleServers(*job, 2);
  Kill(*job, "ps", 1);
  ASSERT_TRUE(WaitForMove(*job, 2, 2)) << job->Output();
  Finish(*job);
}

TEST_P(PsMoveTest, CheckpointsAreMadeMeanwhile) {
  Flags flags = GetParam().flags;
  flags.push_back("--checkpoint_steps=10");
  flags.push_back("--checkpoint_dir=" + Path("checkpoints"));
  const auto job = StartPs("saved", 2, 2, flags);
  Stroll();
  ASSERT_TRUE(WaitForSteps(*job, 10));
  ScaleServers(*job, 3);
  ASSERT_TRUE(WaitForMove(*job, 1, 3)) << job->Output();
  ScaleServers(*job, 2);
  ASSERT_TRUE(WaitForMove(*job, 2, 2)) << job->Output();
  Finish(*job);
  const int64_t version = Versions(Path("checkpoints")).front();
  const auto next =
      StartPs("from", 3, 2,
              {GetParam().flags[0],
               absl::StrCat("--checkpoint_dir_for_init=", Path("checkpoints"),
                            "/version-", version)});
  ASSERT_EQ(next->Wait(), 0) << next->Output();
  std::map<std::string, double> metrics = LastMetrics(*next);
  EXPECT_EQ(metrics["least"], -kMinibatches) << next->Output();
  EXPECT_EQ(metrics["most"], -kMinibatches);
  EXPECT_EQ(metrics["row"], -kEpochs);
  EXPECT_TRUE(TablesAreThoseOfTheAudit(*next, job.get(), version))
      << next->Output();
}

// A server dies again and again at one point of a move: the one that gets
// buckets, and one that gives them away.
class PsMoveKillTest : public PsChaosTest,
                       public testing::WithParamInterface<ModeAndPoint> {};
INSTANTIATE_TEST_SUITE_P(
    Points, PsMoveKillTest,
    testing::Combine(testing::Values(kAsync, kSync),
                     testing::Values("2:ps.import=kill@20", "2:ps.moved=kill@6",
                                     "0:ps.move=kill@6", "0:ps.fetch=kill@20",
                                     "ps.apply=kill@200")),
    NameOf);

TEST_P(PsMoveKillTest, TheMoveGoesOn) {
  const auto job = StartPs("point", 2, 2, FlagsOf(GetParam()));
  CheckMove(*job);
}

TEST_F(PsChaosTest, NumbersThatCannotBe) {
  const auto job = StartPs("numbers", 1, 1, {"--use_async"});
  Stroll();
  ASSERT_TRUE(WaitForSteps(*job, 5));
  const auto refused = [&](const std::string& job_name,
                           const std::string& flag) {
    const auto scale = Run("refused", {Program("elasticdl"), "scale",
                                       "--job_name=" + job_name, flag});
    EXPECT_NE(scale->Wait(), 0);
    return scale->err();
  };
  EXPECT_THAT(refused(job->name(), "--num_ps_pods=0"),
              HasSubstr("num_ps_pods"));
  EXPECT_THAT(refused(job->name(), "--num_ps_pods=2000"), HasSubstr("1024"));
  Finish(*job);
}

}  // namespace
}  // namespace elasticdl::test
