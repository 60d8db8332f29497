// SIGKILL of workers at every moment of a step and of a change of worlds: the
// others go on, no record is lost or trained twice, all end with one model.
#include <signal.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"

namespace elasticdl::test {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;

std::string NameOf(std::string text) {
  for (char& c : text) {
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return text;
}

// One worker of three dies at a failpoint in its 40th step; while the job
// strolls it does not come that far.
class KillInStepTest : public ChaosTest,
                       public testing::WithParamInterface<const char*> {};

TEST_P(KillInStepTest, TheOthersGoOn) {
  // Of two buckets: the first one is full with the ballast.
  const auto job =
      StartJob(3, {absl::StrCat("--failpoints=", GetParam(), "=kill@40")},
               "ballast=300000");
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2}));
  Walk();
  const int64_t victim = GetParam()[0] - '0';
  ASSERT_TRUE(WaitForLoss(*job, victim));
  Finish(*job);
  const auto ended = job->Events("pod_ended");
  ASSERT_FALSE(ended.empty());
  EXPECT_EQ(ended[0].at("id"), victim);
  EXPECT_THAT(ended[0].at("reason").get<std::string>(), HasSubstr("signal 9"));
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Points, KillInStepTest,
                         testing::Values("1:worker.step", "1:worker.forward",
                                         "1:worker.backward",
                                         "1:worker.reduce.0",
                                         "1:worker.reduce.1", "1:worker.apply",
                                         "0:worker.reduce.0", "0:worker.apply"),
                         [](const auto& info) { return NameOf(info.param); });

// A third worker comes to two. Somebody dies while the world of three is made.
class KillInChangeTest : public ChaosTest,
                         public testing::WithParamInterface<const char*> {};

TEST_P(KillInChangeTest, TheOthersGoOn) {
  // With a minimum of two, the first world is that of both.
  const auto job = StartJob(
      2, {"--min_workers=2", absl::StrCat("--failpoints=", GetParam())},
      "ballast=300000");
  ASSERT_TRUE(WaitForWorld(*job, {0, 1}));
  const int64_t victim = GetParam()[0] - '0';
  Scale(*job, 3);
  ASSERT_TRUE(WaitForLoss(*job, victim));
  ASSERT_TRUE(WaitForSize(*job, 3));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Points, KillInChangeTest,
    testing::Values("2:world.offer=kill@1", "2:world.connect=kill@1",
                    "2:worker.enter_world=kill@1", "2:level.take=kill@2",
                    "0:world.offer=kill@2", "0:world.connect=kill@2",
                    "0:worker.enter_world=kill@2"),
    [](const auto& info) { return NameOf(info.param); });

// A third worker comes to two and is given the state in many pieces while they
// train. Somebody dies at one of them: who gives, who takes, who is level.
class KillWhileCatchingUpTest
    : public ChaosTest,
      public testing::WithParamInterface<const char*> {};

// With steps of 100 ms, about 25 pieces.
constexpr int64_t kManyEpochs = 15;
const Flags kInPieces = {"--background_join_mb=0.1", "--join_bandwidth_mb=1",
                         absl::StrCat("--num_epochs=", kManyEpochs)};

TEST_P(KillWhileCatchingUpTest, TheOthersGoOn) {
  Flags flags = kInPieces;
  flags.push_back("--min_workers=2");
  flags.push_back(absl::StrCat("--failpoints=", GetParam()));
  const auto job = StartJob(2, flags, "ballast=300000;batch_norm=1");
  ASSERT_TRUE(WaitForWorld(*job, {0, 1}));
  const int64_t victim = GetParam()[0] - '0';
  Scale(*job, 3);
  ASSERT_TRUE(WaitForLoss(*job, victim));
  ASSERT_TRUE(WaitForSize(*job, 3));
  ASSERT_TRUE(job->WaitUntil("a worker that caught up", [](const auto& events) {
    return std::any_of(events.begin(), events.end(), [](const auto& event) {
      return event.at("event") == "caught_up";
    });
  }));
  Finish(*job, kManyEpochs);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Points, KillWhileCatchingUpTest,
    // Which of the first two gives and which one watches is chance.
    testing::Values("2:stream.take=kill@1", "2:stream.take=kill@5",
                    "2:stream.take=kill@12",
                    "0:stream.give=kill@1;0:stream.watch=kill@1",
                    "1:stream.give=kill@1;1:stream.watch=kill@1",
                    "0:stream.give=kill@5;0:stream.watch=kill@5",
                    "1:stream.give=kill@5;1:stream.watch=kill@5",
                    "0:stream.give=kill@12;0:stream.watch=kill@12",
                    "1:stream.give=kill@12;1:stream.watch=kill@12"),
    [](const auto& info) { return NameOf(info.param); });

class ChaosKillTest : public ChaosTest {};

TEST_F(ChaosKillTest, TheOnlyMemberThatIsLevelWhileAnotherCatchesUp) {
  Flags flags = kInPieces;
  flags.push_back("--failpoints=0:stream.give=kill@5");
  flags.push_back("--keep_state=false");
  const auto job = StartJob(1, flags, "ballast=300000");
  ASSERT_TRUE(WaitForWorld(*job, {0}));
  Scale(*job, 2);
  ASSERT_TRUE(WaitForLoss(*job, 0));
  ASSERT_TRUE(WaitForSize(*job, 2));
  Finish(*job, kManyEpochs);
  EXPECT_THAT(CutBacks(*job), ElementsAre(0));
}

TEST_F(ChaosKillTest, TheOnlyMemberThatIsLevelLeavesWhenAnotherHasTheModel) {
  const auto job = StartJob(1, kInPieces, "ballast=300000");
  ASSERT_TRUE(WaitForWorld(*job, {0}));
  Scale(*job, 2);
  ASSERT_TRUE(WaitForWorld(*job, {0, 1}));
  Signal(*job, 0, SIGTERM);
  ASSERT_TRUE(WaitForLoss(*job, 0));
  ASSERT_TRUE(WaitForSize(*job, 2));
  Finish(*job, kManyEpochs);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

TEST_F(ChaosKillTest, ByTheCommand) {
  const auto job = StartJob(2, kInPieces, "ballast=300000");
  ASSERT_TRUE(WaitForWorld(*job, {0, 1}));
  const auto kill = [&](const std::string& name, const Flags& more) {
    Flags argv = {Program("elasticdl"), "kill", "--job_name=" + job->name()};
    argv.insert(argv.end(), more.begin(), more.end());
    const auto run = Run(name, argv);
    EXPECT_EQ(run->Wait(), 0) << run->err() << job->Output();
  };
  kill("kill", {"0"});
  ASSERT_TRUE(WaitForLoss(*job, 0));
  ASSERT_TRUE(WaitForSize(*job, 2));
  kill("preempt", {"--notice", "1"});
  ASSERT_TRUE(WaitForLoss(*job, 1));
  ASSERT_TRUE(WaitForSize(*job, 2));
  Finish(*job, kManyEpochs);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  const std::vector<Json> lost = job->Events("worker_lost");
  ASSERT_GE(lost.size(), 2u);
  EXPECT_EQ(lost[0].at("reason"), "signal 9 (SIGKILL)");
  EXPECT_EQ(lost[1].at("reason"), "left (SIGTERM)");
}

TEST_F(ChaosKillTest, FourCatchUpAtOnceAndOneOfThemDies) {
  Flags flags = kInPieces;
  flags.push_back("--failpoints=3:stream.take=kill@4");
  const auto job = StartJob(1, flags, "ballast=300000");
  ASSERT_TRUE(WaitForWorld(*job, {0}));
  Scale(*job, 5);
  ASSERT_TRUE(WaitForLoss(*job, 3));
  ASSERT_TRUE(WaitForSize(*job, 5));
  Finish(*job, kManyEpochs);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

TEST_F(ChaosKillTest, TheDonorWhileAJoinerIsBroughtLevel) {
  // Worker 0 says its totals alone in the first world (1), brings worker 1
  // level in the second (totals, weights, momentum: 4), and dies with the
  // weights of the third.
  const auto job = StartJob(1, {"--failpoints=0:level.give=kill@6"});
  ASSERT_TRUE(WaitForWorld(*job, {0}));
  Scale(*job, 2);
  ASSERT_TRUE(WaitForWorld(*job, {0, 1}));
  Scale(*job, 3);
  ASSERT_TRUE(WaitForWorld(*job, {1, 2}));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

TEST_F(ChaosKillTest, TheOnlyDonorTakesTheModelWithIt) {
  const auto job =
      StartJob(1, {"--keep_state=false", "--failpoints=0:level.give=kill@3"});
  ASSERT_TRUE(WaitForWorld(*job, {0}));
  // Without a step there would be nothing to cut back.
  ASSERT_TRUE(job->WaitUntil("a step", [](const auto& events) {
    return std::any_of(events.begin(), events.end(), [](const auto& event) {
      return event.at("event") == "first_step";
    });
  }));
  Scale(*job, 2);
  ASSERT_TRUE(WaitForLoss(*job, 0));
  ASSERT_TRUE(job->WaitUntil("world of worker 1", [](const auto& events) {
    return Members(events).count(1) == 1;
  }));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), ElementsAre(0));
}

// First one of the three, then the one that took its place. Whether the others
// had entered by then is chance.
TEST_F(ChaosKillTest, InTheFirstWorld) {
  const auto job = StartJob(
      3, {"--min_workers=3",
          "--failpoints=1:worker.enter_world=kill;3:worker.enter_world=kill"});
  ASSERT_TRUE(WaitForWorld(*job, {0, 2, 4}));
  Finish(*job);
}

TEST_F(ChaosKillTest, RankZero) {
  const auto job = StartJob(3);
  ASSERT_TRUE(WaitForSize(*job, 3));
  const int64_t first = LastWorld(job->Events()).at("members")[0];
  Signal(*job, first, SIGKILL);
  ASSERT_TRUE(WaitForLoss(*job, first));
  // Its place is taken.
  ASSERT_TRUE(WaitForSize(*job, 3));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

TEST_F(ChaosKillTest, TwoOfFour) {
  const auto job = StartJob(4);
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2, 3}));
  Walk();
  Signal(*job, 0, SIGKILL);
  Signal(*job, 2, SIGKILL);
  ASSERT_TRUE(WaitForLoss(*job, 0) && WaitForLoss(*job, 2));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

TEST_F(ChaosKillTest, ThreeOfFour) {
  const auto job = StartJob(4);
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2, 3}));
  Walk();
  for (const int id : {0, 1, 3}) Signal(*job, id, SIGKILL);
  for (const int id : {0, 1, 3}) ASSERT_TRUE(WaitForLoss(*job, id));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
}

TEST_F(ChaosKillTest, AllWithoutACheckpointStartAnew) {
  const auto job = StartJob(3, {"--keep_state=false"});
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2}));
  for (const int id : {0, 1, 2}) Signal(*job, id, SIGKILL);
  for (const int id : {0, 1, 2}) ASSERT_TRUE(WaitForLoss(*job, id));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), ElementsAre(0));
}

TEST_F(ChaosKillTest, AllGoOnFromTheNewestCheckpoint) {
  const std::string checkpoints = Path("checkpoints");
  const auto job =
      StartJob(3, {"--checkpoint_steps=10", "--checkpoint_dir=" + checkpoints,
                   "--keep_state=false"});
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2}));
  Walk();
  ASSERT_TRUE(job->WaitUntil("checkpoint", [](const auto& events) {
    return events.back().at("event") == "checkpoint" &&
           events.back().at("version") >= 30;
  }));
  for (const int id : {0, 1, 2}) Signal(*job, id, SIGKILL);
  for (const int id : {0, 1, 2}) ASSERT_TRUE(WaitForLoss(*job, id));
  Finish(*job);
  // There is none when nothing was reported after the last save.
  EXPECT_THAT(CutBacks(*job), SizeIs(Le(1u)));
  EXPECT_THAT(CutBacks(*job), Each(Ge(30)));
}

TEST_F(ChaosKillTest, InAnEvaluation) {
  const auto job =
      StartJob(3, {"--validation_data=" + test_csv(), "--evaluation_steps=40",
                   "--min_workers=3", "--failpoints=1:worker.evaluate=kill@2"});
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2}));
  Walk();
  ASSERT_TRUE(WaitForLoss(*job, 1));
  Finish(*job);
  std::vector<int64_t> steps;
  for (const Json& event : job->Events("evaluation")) {
    steps.push_back(event.at("step"));
  }
  // Minibatches that the death cut in two make a step or two more, and the
  // last model is evaluated, too.
  ASSERT_THAT(steps, SizeIs(AnyOf(5u, 6u)));
  steps.resize(5);
  EXPECT_THAT(steps, ElementsAre(40, 80, 120, 160, 200));
}

// Worker 0 is rank 0, which saves.
class KillInSaveTest : public ChaosTest,
                       public testing::WithParamInterface<const char*> {};

TEST_P(KillInSaveTest, TheOthersSave) {
  const std::string checkpoints = Path("checkpoints");
  const auto job =
      StartJob(1, {"--checkpoint_steps=100", "--checkpoint_dir=" + checkpoints,
                   absl::StrCat("--failpoints=0:", GetParam())});
  ASSERT_TRUE(WaitForWorld(*job, {0}));
  Scale(*job, 3);
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2}));
  Walk();
  ASSERT_TRUE(WaitForLoss(*job, 0));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), IsEmpty());
  EXPECT_EQ(Versions(checkpoints).back(), job->End().at("step"));
}

// Visits per save: write 4, fsync 6, rename 1. It dies in its first one, to
// which it does not come while it strolls.
INSTANTIATE_TEST_SUITE_P(Points, KillInSaveTest,
                         testing::Values("checkpoint.write=kill@2",
                                         "checkpoint.rename=kill@1"),
                         [](const auto& info) { return NameOf(info.param); });

// The model is too large to be copied: it is read while it is trained.
TEST_F(ChaosKillTest, WhoSavesALargeModel) {
  const std::string checkpoints = Path("checkpoints");
  const auto job =
      StartJob(2,
               {"--checkpoint_steps=20", "--checkpoint_dir=" + checkpoints,
                "--failpoints=0:checkpoint.write=kill@150;"
                "1:checkpoint.write=kill@150"},
               "ballast=2500000;batch_norm=1");
  ASSERT_TRUE(WaitForWorld(*job, {0, 1}));
  Walk();
  ASSERT_TRUE(job->WaitUntil("a loss", [](const auto& events) {
    return std::any_of(events.begin(), events.end(), [](const auto& event) {
      return event.at("event") == "pod_ended";
    });
  }));
  Finish(*job);
  EXPECT_EQ(Versions(checkpoints).back(), job->End().at("step"));
}

}  // namespace
}  // namespace elasticdl::test
