// Training with several workers gives what training with one gives.
#include <signal.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"

namespace elasticdl::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ChaosTrainingTest : public ChaosTest {
 protected:
  static Json LastMetrics(Job& job) {
    const std::vector<Json> evaluations = job.Events("evaluation");
    if (evaluations.empty()) {
      ADD_FAILURE() << "no evaluation; " << job.Output();
      return Json{{"mse", -1.0}, {"mae", -1.0}};
    }
    return evaluations.back().at("metrics");
  }
};

TEST_F(ChaosTrainingTest, GlobalBatchGivesTheSameNumberOfSteps) {
  // At full speed, steps of next to no work wait for no data.
  Walk();
  for (const int64_t workers : {1, 3}) {
    const auto job = StartJobNamed(absl::StrCat("of-", workers), workers,
                                   {"--global_batch_size=48", "--num_epochs=2",
                                    absl::StrCat("--min_workers=", workers)});
    Check(*job, 2);
    // 960 records in steps of 48; at the very end some may have no data left.
    EXPECT_GE(job->End().at("step"), 40);
    EXPECT_LE(job->End().at("step"), 42);
  }
}

TEST_F(ChaosTrainingTest, GlobalBatchOfManyMinibatches) {
  Go();
  // More in one step than a worker usually reads ahead.
  const auto job = StartJob(1, {"--global_batch_size=160", "--num_epochs=1",
                                "--num_minibatches_per_task=60"});
  Finish(*job, 1);
  EXPECT_EQ(job->End().at("step"), 6);
}

TEST_F(ChaosTrainingTest, GlobalBatchStaysTheSameWhenAWorkerDies) {
  const auto job = StartJob(3, {"--global_batch_size=48", "--num_epochs=3"});
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2}));
  Signal(*job, 1, SIGKILL);
  ASSERT_TRUE(WaitForLoss(*job, 1));
  Walk();
  Check(*job, 3);
  // In a new world some have no data at first: a few steps are smaller. With
  // steps of one minibatch per worker there would be 120 and more.
  EXPECT_GE(job->End().at("step"), 60);
  EXPECT_LE(job->End().at("step"), 75);
}

TEST_F(ChaosTrainingTest, CompressedGradientsTrainAsWell) {
  Go();
  std::map<std::string, double> mse;
  for (const std::string compression : {"none", "bf16", "fp16"}) {
    const auto job =
        StartJobNamed(compression, 2,
                      {"--grad_compression=" + compression, "--min_workers=2",
                       "--validation_data=" + test_csv(), "--seed=7"});
    Finish(*job);
    mse[compression] = LastMetrics(*job).at("mse");
  }
  std::cout << "[ mse      ] none " << mse["none"] << " bf16 " << mse["bf16"]
            << " fp16 " << mse["fp16"] << "\n";
  // It begins at about 4.
  EXPECT_LT(mse["none"], 0.1);
  EXPECT_NEAR(mse["bf16"], mse["none"], 0.02);
  EXPECT_NEAR(mse["fp16"], mse["none"], 0.02);
}

TEST_F(ChaosTrainingTest, BatchNormBuffersAreKeptLevel) {
  const auto job = StartJob(3, {}, "batch_norm=1");
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2}));
  Walk();
  Signal(*job, 2, SIGKILL);
  ASSERT_TRUE(WaitForLoss(*job, 2));
  ASSERT_TRUE(WaitForSize(*job, 3));
  Finish(*job);
}

TEST_F(ChaosTrainingTest, MaxStep) {
  Go();
  const auto job = StartJob(3, {"--max_step=50", "--min_workers=3"});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_EQ(job->End().at("step"), 50);
  EXPECT_TRUE(ChaosLedgerIsExact(*job, kEpochs, {"--partial"}));
  EXPECT_TRUE(ModelsAreEqual(*job));
}

TEST_F(ChaosTrainingTest, EarlyStop) {
  Go();
  const auto job =
      StartJob(3,
               {"--min_workers=3", "--validation_data=" + test_csv(),
                "--evaluation_steps=20"},
               "patience=1");
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  // The first evaluation is the best so far; the second is no better.
  EXPECT_EQ(job->End().at("step"), 40) << job->Output();
  EXPECT_TRUE(ChaosLedgerIsExact(*job, kEpochs, {"--partial"}));
  EXPECT_TRUE(ModelsAreEqual(*job));
  EXPECT_THAT(job->process().out(), HasSubstr("training stops early"));
}

TEST_F(ChaosTrainingTest, EvaluationIsThatOfOneWorker) {
  Go();
  const std::string checkpoints = Path("checkpoints");
  const auto job = StartJob(
      3, {"--min_workers=3", "--validation_data=" + test_csv(),
          "--checkpoint_steps=1000", "--checkpoint_dir=" + checkpoints});
  Finish(*job);
  const auto evaluate =
      Evaluate("evaluate", {"--checkpoint_dir_for_init=" + checkpoints});
  ASSERT_EQ(evaluate->Wait(), 0) << evaluate->Output();
  const Json many = LastMetrics(*job);
  const Json one = LastMetrics(*evaluate);
  for (const char* metric : {"mse", "mae"}) {
    const double value = one.at(metric);
    // Parts are added in another order.
    EXPECT_NEAR(many.at(metric).get<double>(), value, 1e-6 * value) << metric;
  }
}

}  // namespace
}  // namespace elasticdl::test
