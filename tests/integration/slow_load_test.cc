// Jobs whose state takes several times --load_timeout to load: slow is not
// stuck.
#include <signal.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"

namespace elasticdl::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class SlowLoadTest : public ChaosTest {
 protected:
  // 1.2 MB of weights and as much momentum: a checkpoint is read in ten parts.
  static constexpr char kBallast[] = "ballast=300000";

  // Of another job, at its step 10.
  std::string MakeCheckpoint() {
    const std::string first = Path("first");
    Go();
    const auto job = StartJobNamed(
        "first", 1, {"--max_step=10", "--checkpoint_dir=" + first}, kBallast);
    EXPECT_EQ(job->Wait(), 0) << job->Output();
    EXPECT_THAT(Versions(first), ElementsAre(10));
    EXPECT_EQ(unlink((pace() + "/go").c_str()), 0);
    return first;
  }
  // A job that starts there, takes 5 s or more to load it with a limit of 2 s,
  // and writes checkpoints, too.
  Flags Slow(const std::string& from) const {
    return {"--checkpoint_dir_for_init=" + from,
            "--checkpoint_dir=" + Path("checkpoints"),
            "--checkpoint_steps=5",
            "--min_workers=2",
            "--load_timeout=2",
            "--keep_state=false",
            "--failpoints=checkpoint.read=delay(500);level.give=delay(500)"};
  }
};

TEST_F(SlowLoadTest, AJobStartsCrashesAndRecovers) {
  const std::string first = MakeCheckpoint();
  const auto job = StartJob(2, Slow(first), kBallast);
  ASSERT_TRUE(WaitForWorld(*job, {0, 1}));
  const Json saved = job->WaitForEvent("checkpoint");
  Signal(*job, 0, SIGKILL);
  Signal(*job, 1, SIGKILL);
  ASSERT_TRUE(WaitForWorld(*job, {2, 3}));
  Go();
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  ASSERT_THAT(CutBacks(*job), SizeIs(1));
  EXPECT_GE(CutBacks(*job)[0], saved.at("version").get<int64_t>());
  EXPECT_THAT(job->process().out(), Not(HasSubstr("evicted")));
  EXPECT_THAT(job->Events("worker_lost"), SizeIs(2));
  EXPECT_TRUE(ModelsAreEqual(*job));
}

// Rank 0 loads, or is about to, for a world that is gone.
TEST_F(SlowLoadTest, ADeathDuringTheLoadIsSurvived) {
  Flags flags = Slow(MakeCheckpoint());
  flags.push_back(
      "--failpoints=1:worker.enter_world=kill;checkpoint.read=delay(500)");
  const auto job = StartJob(2, flags, kBallast);
  ASSERT_TRUE(WaitForWorld(*job, {0, 2}));
  Go();
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(job->Events("worker_lost"), SizeIs(1));
  EXPECT_TRUE(ModelsAreEqual(*job));
}

TEST_F(SlowLoadTest, AMemberThatIsStuckIsReplaced) {
  const auto job =
      StartJob(2, {"--min_workers=2", "--load_timeout=2",
                   "--failpoints=0:worker.enter_world=delay(600000)"});
  ASSERT_TRUE(WaitForWorld(*job, {1, 2}));
  Finish(*job);
  ASSERT_THAT(job->Events("worker_lost"), SizeIs(1));
  const Json lost = job->Events("worker_lost")[0];
  EXPECT_EQ(lost.at("worker_id"), 0);
  EXPECT_THAT(lost.at("reason").get<std::string>(),
              HasSubstr("moved no bytes of the model's state for 2s"));
}

}  // namespace
}  // namespace elasticdl::test
