// What a job tells besides its results: one log of all pods, TensorBoard's
// files. And how flags change what becomes of its workers.
#include <signal.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

using OutputsTest = JobTest;

TEST_F(OutputsTest, LogFileHoldsTheLinesOfAllPods) {
  const auto job = Train("logged", {"--log_file_path=" + Path("all.log")});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  const std::string all = Contents(Path("all.log"));
  EXPECT_THAT(all, AllOf(HasSubstr("[master]"), HasSubstr("[worker 0]"),
                         HasSubstr("job logged succeeded")));
  for (const char* pod : {"master", "0"}) {
    for (const std::string& line : Lines(Path(absl::StrCat(
             "state/elasticdl/jobs/logged/logs/",
             pod == std::string("0") ? "elasticdl-worker-logged-0" : pod,
             ".log")))) {
      EXPECT_THAT(all, HasSubstr(line));
    }
  }
}

TEST_F(OutputsTest, LogFileHoldsWhyTheMasterDidNotStart) {
  const auto job = Train("refused", {"--log_file_path=" + Path("all.log"),
                                     "--training_data=" + Path("nothing")});
  EXPECT_EQ(job->Wait(), 1);
  EXPECT_THAT(Contents(Path("all.log")), HasSubstr(Path("nothing")));
}

TEST_F(OutputsTest, ARefusedJobIsListedAsFailed) {
  const auto job = Train("refused", {"--training_data=" + Path("nothing")});
  EXPECT_EQ(job->Wait(), 1);
  EXPECT_THAT(job->process().err(),
              AllOf(HasSubstr("job refused failed"), HasSubstr("nothing")));
  EXPECT_EQ(job->End().at("state"), "failed");
  const auto list = Run("list", {Program("elasticdl"), "list", "--json"});
  ASSERT_EQ(list->Wait(), 0);
  const Json listed = Json::parse(list->out());
  ASSERT_THAT(listed, SizeIs(1));
  EXPECT_EQ(listed[0].at("state"), "failed");
  EXPECT_THAT(std::string(listed[0].at("reason")), HasSubstr("nothing"));
}

TEST_F(OutputsTest, WritesTensorBoardFiles) {
  const auto job = Train(
      "curves", {"--tensorboard_log_dir=" + Path("tb"),
                 "--tensorboard_histograms=5", "--model_summary",
                 "--validation_data=" + test_csv(), "--evaluation_steps=10"});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  const auto files = List(Path("tb/curves"));
  ASSERT_THAT(files, ElementsAre(StartsWith("events.out.tfevents.")));
  EXPECT_THAT(
      Contents(Path("tb/curves/" + files[0])),
      AllOf(HasSubstr("train/loss"), HasSubstr("train/learning_rate"),
            HasSubstr("evaluation/mse"), HasSubstr("weights/hidden.weight"),
            HasSubstr("gradients/out.bias")));
  EXPECT_THAT(job->Output(),
              AllOf(HasSubstr("hidden.weight  Linear  8x1"),
                    HasSubstr("the model has 25 trained numbers")));
  const auto model = job->Events("model");
  ASSERT_THAT(model, SizeIs(1));
  EXPECT_EQ(model[0].at("trained"), 25);
  EXPECT_THAT(model[0].at("tensors"), SizeIs(4));
}

TEST_F(OutputsTest, LostWorkerIsNotReplacedWhenThatIsSwitchedOff) {
  const auto job = Train(
      "fragile", {"--aux_params=disable_relaunch=true", "--num_epochs=0"});
  kill(job->WaitForWorker(0), SIGKILL);
  EXPECT_EQ(job->Wait(), 1);
  EXPECT_THAT(job->Events("pod_started"), SizeIs(1));
  EXPECT_THAT(std::string(job->End().at("reason")),
              HasSubstr("disable_relaunch=true"));
}

}  // namespace
}  // namespace elasticdl::test
