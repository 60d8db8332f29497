// Initial values of large parameters are made by one worker, when nobody has a
// model; they are the same whoever makes them.
#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"

namespace elasticdl::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class InitialValuesTest : public ChaosTest {
 protected:
  // A job whose steps change nothing that a float has room for: its last model
  // is its first one. Most of it is 1.2 MB of parameters.
  std::unique_ptr<Job> StartStill(const std::string& name, int64_t workers,
                                  const Flags& more = {},
                                  const std::string& params = "") {
    Flags flags = {"--seed=3", "--optimizer=SGD(lr=1e-30)"};
    flags.insert(flags.end(), more.begin(), more.end());
    return StartJobNamed(name, workers, flags,
                         absl::StrCat("ballast=300000", params));
  }
  static std::vector<int64_t> Makers(Job& job) {
    std::vector<int64_t> makers;
    for (const int64_t id : job.WorkersWithLogs()) {
      if (absl::StrContains(job.Log(absl::StrCat(id)),
                            "made the initial values of 1 MB")) {
        makers.push_back(id);
      }
    }
    return makers;
  }
  static std::string LastDigest(Job& job) {
    const auto digests = Digests(job, job.End().at("step"));
    return digests.empty() ? "" : digests.begin()->second;
  }
  // Of a model that was made at once.
  std::string Expected() {
    const auto job = StartStill("expected", 1, {}, ";peek=1");
    EXPECT_EQ(job->Wait(), 0) << job->Output();
    EXPECT_THAT(job->Log("0"), HasSubstr("uses the memory of parameters"));
    EXPECT_THAT(Makers(*job), IsEmpty());
    const std::string digest = LastDigest(*job);
    EXPECT_NE(digest, "");
    return digest;
  }
};

TEST_F(InitialValuesTest, OneMemberMakesThem) {
  const auto job = StartStill("many", 2);
  Walk();
  ASSERT_TRUE(WaitForSize(*job, 2));
  Scale(*job, 3);
  ASSERT_TRUE(WaitForSize(*job, 3));
  Finish(*job);
  EXPECT_THAT(Makers(*job), SizeIs(1));
  EXPECT_EQ(LastDigest(*job), Expected());
}

TEST_F(InitialValuesTest, WhoeverBeginsAgainMakesThemAgain) {
  const auto job = StartStill("again", 1, {"--keep_state=false"});
  Walk();
  ASSERT_FALSE(job->WaitForEvent("first_step").is_null());
  Signal(*job, 0, SIGKILL);
  ASSERT_TRUE(WaitForLoss(*job, 0));
  Finish(*job);
  EXPECT_THAT(CutBacks(*job), ElementsAre(0));
  EXPECT_THAT(Makers(*job), ElementsAre(0, 1));
  EXPECT_EQ(LastDigest(*job), Expected());
}

TEST_F(InitialValuesTest, NobodyMakesThoseOfACheckpoint) {
  Go();
  const std::string checkpoints = Path("checkpoints");
  const auto first =
      StartStill("first", 1,
                 {"--checkpoint_dir=" + checkpoints, "--checkpoint_steps=100"});
  ASSERT_EQ(first->Wait(), 0) << first->Output();
  EXPECT_THAT(Makers(*first), ElementsAre(0));
  const auto second = StartStill("second", 2,
                                 {"--checkpoint_dir_for_init=" + checkpoints,
                                  absl::StrCat("--num_epochs=", kEpochs + 1)});
  ASSERT_EQ(second->Wait(), 0) << second->Output();
  EXPECT_THAT(Makers(*second), IsEmpty());
  EXPECT_EQ(LastDigest(*second), Expected());
}

}  // namespace
}  // namespace elasticdl::test
