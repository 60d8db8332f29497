// Training to its end, and what is left of it: model, checkpoints, evaluation,
// predictions.
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class TrainTest : public JobTest {
 protected:
  // Evaluates and saves every 10 of 40 steps; the model waits for each save, so
  // that none is overtaken by the next.
  Flags WithCheckpoints(const std::string& checkpoints) {
    return {"--num_epochs=2",
            "--evaluation_steps=10",
            "--validation_data=" + test_csv(),
            "--checkpoint_steps=10",
            "--checkpoint_dir=" + checkpoints,
            "--model_params=await=" + checkpoints};
  }
};

TEST_F(TrainTest, TrainsEveryRecordOnceInEachEpoch) {
  const auto job = Train("all", {"--num_epochs=3", "--output=" + Path("out")});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), 3));
  EXPECT_THAT(job->process().out(), HasSubstr("job all succeeded"));

  const Json end = job->End();
  EXPECT_EQ(end.at("state"), "succeeded");
  EXPECT_EQ(end.at("exit_code"), 0);
  EXPECT_EQ(end.at("step"), 60);
  EXPECT_THAT(job->Events("job_start"), SizeIs(1));
  EXPECT_THAT(job->Events("pod_started"), SizeIs(1));
  EXPECT_THAT(job->Events("worker_ready"), SizeIs(1));
  EXPECT_THAT(job->Events("worker_lost"), IsEmpty());

  for (const char* file : {"state_dict.pt", "model.pt"}) {
    EXPECT_FALSE(Contents(Path(absl::StrCat("out/", file))).empty()) << file;
  }
}

TEST_F(TrainTest, AuditOfWrongNumberOfEpochsIsRejected) {
  // The checker itself: an audit that lacks something does not pass.
  const auto job = Train("short", {});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), 1));
  EXPECT_FALSE(LedgerIsExact(job->audit(), 2));
  EXPECT_FALSE(LedgerIsExact(
      job->audit(), 1, {absl::StrCat("--set_aside=0:", train_csv(), ":0:1")}));
}

TEST_F(TrainTest, AnotherJobStartsTheAuditAnew) {
  for (const char* name : {"first", "second"}) {
    const auto job = Train(name, {"--ledger_audit=" + Path("audit")});
    ASSERT_EQ(job->Wait(), 0) << job->Output();
    EXPECT_TRUE(LedgerIsExact(Path("audit"), 1));
  }
}

// What a second job makes of the checkpoints of a first one is said where its
// user looks.
TEST_F(TrainTest, UsedCheckpointFoldersAreTold) {
  const std::string checkpoints = Path("checkpoints");
  const Flags flags = {"--checkpoint_steps=10",
                       "--checkpoint_dir=" + checkpoints};
  const auto output = [&](const std::string& name, const Flags& more) {
    Flags all = flags;
    all.insert(all.end(), more.begin(), more.end());
    const auto job = Train(name, all);
    EXPECT_EQ(job->Wait(), 0) << job->Output();
    return job->process().out() + job->process().err();
  };
  const std::string warning =
      absl::StrCat("warning: --checkpoint_dir=", checkpoints);
  const std::string again = "all epochs are trained again";
  EXPECT_THAT(output("first", {}),
              AllOf(Not(HasSubstr(warning)), Not(HasSubstr(again))));
  EXPECT_THAT(output("fresh", {"--max_step=10"}),
              HasSubstr(absl::StrCat(warning, " has version-20 ")));
  const std::string init = "--checkpoint_dir_for_init=" + checkpoints;
  EXPECT_THAT(output("longer", {init, "--num_epochs=2"}),
              AllOf(Not(HasSubstr(warning)), Not(HasSubstr(again))));
  EXPECT_THAT(output("over", {init, "--num_epochs=2"}),
              AllOf(Not(HasSubstr(warning)), HasSubstr(again)));
}

TEST_F(TrainTest, EvaluatesAndSavesAtExactSteps) {
  const std::string checkpoints = Path("checkpoints");
  const auto job = Train("exact", WithCheckpoints(checkpoints));
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  std::vector<int> steps;
  for (const Json& event : job->Events("evaluation")) {
    steps.push_back(event.at("step"));
    EXPECT_TRUE(event.at("metrics").at("mse").is_number());
    EXPECT_TRUE(event.at("metrics").at("mae").is_number());
  }
  EXPECT_THAT(steps, ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(Versions(checkpoints), ElementsAre(10, 20, 30, 40));
  std::vector<int> saved;
  for (const Json& event : job->Events("checkpoint")) {
    saved.push_back(event.at("version"));
    EXPECT_FALSE(event.contains("error")) << event;
  }
  EXPECT_THAT(saved, ElementsAre(10, 20, 30, 40));
}

TEST_F(TrainTest, KeepsTheNewestCheckpoints) {
  const std::string checkpoints = Path("checkpoints");
  Flags flags = WithCheckpoints(checkpoints);
  flags.push_back("--keep_checkpoint_max=2");
  const auto job = Train("keep", flags);
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(List(checkpoints), ElementsAre("version-30", "version-40"));
}

TEST_F(TrainTest, EvaluateGivesTheNumbersOfTheTraining) {
  const std::string checkpoints = Path("checkpoints");
  const auto job = Train("first", WithCheckpoints(checkpoints));
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  std::map<int, Json> trained;
  for (const Json& event : job->Events("evaluation")) {
    trained[event.at("step")] = event.at("metrics");
  }
  ASSERT_THAT(trained, SizeIs(4));
  EXPECT_NE(trained[10], trained[40]);

  // The newest of a folder, and one by name; equal to the last bit.
  const auto newest =
      Evaluate("newest", {"--checkpoint_dir_for_init=" + checkpoints});
  ASSERT_EQ(newest->Wait(), 0) << newest->Output();
  ASSERT_THAT(newest->Events("evaluation"), SizeIs(1));
  EXPECT_EQ(newest->Events("evaluation")[0].at("metrics"), trained[40]);
  EXPECT_THAT(newest->process().out(), HasSubstr("evaluation at step 40: "));

  const auto named = Evaluate(
      "named", {"--checkpoint_dir_for_init=" + checkpoints + "/version-10"});
  ASSERT_EQ(named->Wait(), 0) << named->Output();
  ASSERT_THAT(named->Events("evaluation"), SizeIs(1));
  EXPECT_EQ(named->Events("evaluation")[0].at("metrics"), trained[10]);
}

TEST_F(TrainTest, PredictsEveryRecordOnce) {
  const std::string checkpoints = Path("checkpoints");
  const auto job = Train(
      "train", {"--checkpoint_steps=1000", "--checkpoint_dir=" + checkpoints});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  const std::string out = Path("predictions");
  const auto predict =
      Predict("predict", {"--checkpoint_dir_for_init=" + checkpoints,
                          "--prediction_output_dir=" + out});
  ASSERT_EQ(predict->Wait(), 0) << predict->Output();

  ASSERT_THAT(List(out), ElementsAre("predictions-worker-0.csv"));
  std::vector<std::string> rows = Lines(out + "/predictions-worker-0.csv");
  ASSERT_THAT(rows, SizeIs(1 + kTestRecords));
  EXPECT_EQ(rows[0], "shard,record,output_0");
  std::set<std::string> seen;
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::vector<std::string> fields = absl::StrSplit(rows[i], ',');
    ASSERT_THAT(fields, SizeIs(3)) << rows[i];
    EXPECT_EQ(fields[0], test_csv());
    EXPECT_TRUE(seen.insert(fields[1]).second) << "twice: " << rows[i];
  }
  for (int64_t i = 0; i < kTestRecords; ++i) {
    EXPECT_THAT(seen, Contains(std::to_string(i)));
  }
}

TEST_F(TrainTest, SeveralWorkersEvaluateAndPredictTogether) {
  const std::string checkpoints = Path("checkpoints");
  const auto job = Train(
      "train", {"--validation_data=" + test_csv(), "--checkpoint_steps=1000",
                "--checkpoint_dir=" + checkpoints});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  const auto evaluate =
      Evaluate("evaluate",
               {"--checkpoint_dir_for_init=" + checkpoints, "--num_workers=2"});
  ASSERT_EQ(evaluate->Wait(), 0) << evaluate->Output();
  const Json expected = job->Events("evaluation")[0].at("metrics");
  const Json metrics = evaluate->Events("evaluation").at(0).at("metrics");
  for (const char* name : {"mse", "mae"}) {
    const double value = expected.at(name);
    EXPECT_NEAR(metrics.at(name), value, 1e-9 * value) << name;
  }

  const std::string out = Path("predictions");
  const auto predict =
      Predict("predict", {"--checkpoint_dir_for_init=" + checkpoints,
                          "--num_workers=2", "--num_minibatches_per_task=1",
                          "--prediction_output_dir=" + out});
  ASSERT_EQ(predict->Wait(), 0) << predict->Output();
  std::multiset<std::string> records;
  for (const std::string& file : List(out)) {
    std::vector<std::string> rows = Lines(absl::StrCat(out, "/", file));
    for (size_t i = 1; i < rows.size(); ++i) {
      const std::vector<std::string> fields = absl::StrSplit(rows[i], ',');
      records.insert(fields.at(1));
    }
  }
  EXPECT_THAT(records, SizeIs(kTestRecords));
  for (int64_t i = 0; i < kTestRecords; ++i) {
    EXPECT_EQ(records.count(std::to_string(i)), 1u) << i;
  }
}

// It dies between writing a task's rows and reporting them: another does the
// task again.
TEST_F(TrainTest, PredictsEveryRecordOnceWhenAWorkerDies) {
  const std::string checkpoints = Path("checkpoints");
  const auto job = Train(
      "train", {"--checkpoint_steps=1000", "--checkpoint_dir=" + checkpoints});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  const std::string out = Path("predictions");
  const auto predict =
      Predict("predict",
              {"--checkpoint_dir_for_init=" + checkpoints,
               "--num_minibatches_per_task=1", "--prediction_output_dir=" + out,
               // Worker 1 before its first report.
               "--failpoints=0:worker.predicted=kill@2;"
               "1:worker.predicted=kill"});
  ASSERT_EQ(predict->Wait(), 0) << predict->Output();
  EXPECT_THAT(predict->Events("worker_lost"), SizeIs(2));
  EXPECT_EQ(Contents(out + "/predictions-worker-1.csv"), "");
  EXPECT_THAT(predict->Log("master"), HasSubstr("did not report the rest"));
  std::multiset<std::string> records;
  for (const std::string& file : List(out)) {
    const std::vector<std::string> rows = Lines(absl::StrCat(out, "/", file));
    for (size_t i = 1; i < rows.size(); ++i) {
      const std::vector<std::string> fields = absl::StrSplit(rows[i], ',');
      records.insert(fields.at(1));
    }
  }
  EXPECT_THAT(records, SizeIs(kTestRecords));
  for (int64_t i = 0; i < kTestRecords; ++i) {
    EXPECT_EQ(records.count(std::to_string(i)), 1u) << i;
  }
}

// Without end, until the third evaluation brings nothing better.
TEST_F(TrainTest, EvaluatesByTime) {
  const auto job = Train(
      "time", {"--num_epochs=0", "--validation_data=" + test_csv(),
               "--evaluation_start_delay_secs=0",
               "--evaluation_throttle_secs=1", "--model_params=patience=2"});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  const auto evaluations = job->Events("evaluation");
  ASSERT_GE(evaluations.size(), 3u);
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_GT(evaluations[i].at("step"), evaluations[i - 1].at("step"));
    EXPECT_GE(evaluations[i].at("time").get<double>() -
                  evaluations[i - 1].at("time").get<double>(),
              0.99);
  }
}

TEST_F(TrainTest, StopsAtMaxStep) {
  const auto job =
      Train("max", {"--num_epochs=5", "--max_step=27",
                    "--validation_data=" + test_csv(), "--checkpoint_steps=10",
                    "--checkpoint_dir=" + Path("checkpoints")});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_EQ(job->End().at("step"), 27);
  // The last version is saved and evaluated.
  EXPECT_THAT(Versions(Path("checkpoints")), Contains(27));
  ASSERT_THAT(job->Events("evaluation"), SizeIs(1));
  EXPECT_EQ(job->Events("evaluation")[0].at("step"), 27);
  EXPECT_TRUE(LedgerIsExact(job->audit(), 5, {"--partial"}));
  // The messages are in the order of the events.
  const std::string log = job->Log("master");
  const size_t reached = log.find("training stops early: max_step 27 reached");
  const size_t end = log.find("job max succeeded");
  ASSERT_NE(reached, std::string::npos) << log;
  for (const char* text : {"version-27 in ", "evaluation at step 27: "}) {
    EXPECT_GT(log.find(text), reached) << text << " in\n" << log;
    EXPECT_LT(log.find(text), end) << text << " in\n" << log;
  }
}

TEST_F(TrainTest, EarlyStopEndsTheTraining) {
  const auto job =
      Train("early", {"--num_epochs=50", "--evaluation_steps=10",
                      "--validation_data=" + test_csv(),
                      "--model_params=patience=2;train_end=" + Path("end"),
                      "--output=" + Path("out")});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  // The first evaluation is the best one; two later ones are not better.
  EXPECT_EQ(job->End().at("step"), 30);
  EXPECT_THAT(std::string(job->End().at("reason")),
              AllOf(HasSubstr("stopped early"), HasSubstr("no better mse")));
  EXPECT_THAT(Lines(Path("end")), ElementsAre("train end"));
  EXPECT_THAT(List(Path("out")), ElementsAre("model.pt", "state_dict.pt"));
  EXPECT_TRUE(LedgerIsExact(job->audit(), 50, {"--partial"}));
}

TEST_F(TrainTest, LearningRateFollowsTheSchedule) {
  const auto job = Train(
      "schedule", {"--model_params=lr=0.08;halve=5", "--log_loss_steps=5"});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  const std::string log = job->Log("0");
  for (const char* rate :
       {"step 5 loss ", "lr 0.08\n", "step 10 loss ", "lr 0.04\n",
        "step 15 loss ", "lr 0.02\n", "step 20 loss ", "lr 0.01\n"}) {
    EXPECT_THAT(log, HasSubstr(rate));
  }
}

TEST_F(TrainTest, TheSeedDecidesTheResult) {
  const auto train = [&](const std::string& name, const std::string& seed) {
    const auto job = Train(
        name, {"--seed=" + seed, "--num_epochs=2", "--checkpoint_steps=1000",
               "--checkpoint_dir=" + Path(name)});
    EXPECT_EQ(job->Wait(), 0) << job->Output();
    return Contents(Path(name + "/version-40/variables-0-of-1.ckpt"));
  };
  const std::string one = train("one", "7");
  EXPECT_FALSE(one.empty());
  EXPECT_EQ(one, train("same", "7"));
  EXPECT_NE(one, train("other", "8"));
}

TEST_F(TrainTest, ModelsMayReadTheirOwnData) {
  const std::string checkpoints = Path("checkpoints");
  const auto job = Train(
      "own", {"--model_def=own_reader.custom_model", "--training_data=made:80",
              "--validation_data=made:16", "--num_epochs=2",
              "--checkpoint_steps=1000", "--checkpoint_dir=" + checkpoints});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_TRUE(CheckLedger(
      job->audit(), {"--epochs=2", "--shard=left:0:80", "--shard=right:0:80"}));
  ASSERT_THAT(job->Events("evaluation"), SizeIs(1));

  const auto predict =
      Predict("predict", {"--model_def=own_reader.custom_model",
                          "--prediction_data=made:40",
                          "--checkpoint_dir_for_init=" + checkpoints,
                          "--prediction_output_dir=" + Path("out")});
  ASSERT_EQ(predict->Wait(), 0) << predict->Output();
  EXPECT_THAT(Lines(Path("out/lines")), SizeIs(80));
  EXPECT_THAT(predict->process().out(),
              HasSubstr("predictions: " + Path("out")));
  EXPECT_THAT(predict->Output(), Not(HasSubstr("has no effect")));

  // A processor that takes no folder has its own place, and that is said.
  const auto elsewhere =
      Predict("elsewhere", {"--model_def=own_reader.custom_model",
                            "--prediction_outputs_processor=OwnPlace",
                            "--prediction_data=made:40",
                            "--checkpoint_dir_for_init=" + checkpoints,
                            "--prediction_output_dir=" + Path("unused"),
                            "--model_params=predictions=" + Path("mine")});
  ASSERT_EQ(elsewhere->Wait(), 0) << elsewhere->Output();
  EXPECT_THAT(Lines(Path("mine")), SizeIs(80));
  EXPECT_THAT(elsewhere->process().out(),
              HasSubstr("--prediction_output_dir has no effect"));
  EXPECT_THAT(elsewhere->process().out(), Not(HasSubstr("predictions: ")));
}

}  // namespace
}  // namespace elasticdl::test
