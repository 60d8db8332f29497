// SIGKILL of workers at every moment of a step and of a change of worlds: the
// others go on, no record is lost or trained twice, all end with one model.
#include <signal.h>

#include <cctype>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"

namespace elasticdl::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string NameOf(std::string text) {
  for (char& c : text) {
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return text;
}

// One worker of three dies at a failpoint in its 60th step. While the job
// strolls it does not come that far.
class KillInStepTest : public ChaosTest,
                       public testing::WithParamInterface<const char*> {};

TEST_P(KillInStepTest, TheOthersGoOn) {
  // Of two buckets: the second one has the first layer's weights.
  const auto job =
      StartJob(3, {absl::StrCat("--failpoints=", GetParam(), "=kill@60")},
               "width=140000");
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2}));
  Walk();
  const int64_t victim = GetParam()[0] - '0';
  ASSERT_TRUE(WaitForLoss(*job, victim));
  Stroll();
  ASSERT_TRUE(WaitForSize(*job, 3));
  Finish(*job);
  const auto ended = job->Events("pod_ended");
  ASSERT_FALSE(ended.empty());
  EXPECT_EQ(ended[0].at("id"), victim);
  EXPECT_THAT(ended[0].at("reason").get<std::string>(), HasSubstr("signal 9"));
}

INSTANTIATE_TEST_SUITE_P(
    Points, KillInStepTest,
    testing::Values("1:worker.step", "1:worker.forward", "1:worker.backward",
                    "1:worker.reduce.0", "1:worker.reduce.1", "1:worker.apply",
                    "0:worker.forward", "0:worker.reduce.0", "0:worker.apply"),
    [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace elasticdl::test
