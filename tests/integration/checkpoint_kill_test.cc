// A worker or a whole job that dies at any point of a save: what is on the disk
// afterwards is complete, and training goes on from it.
#include <signal.h>

#include <cctype>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class CheckpointKillTest : public JobTest {
 protected:
  std::string checkpoints() const { return Path("checkpoints"); }

  // 20 steps with a save at 10 and one at 20; only the newest is kept, so that
  // the second save deletes the first. The model waits for each save.
  Flags SavingTwice(const std::string& failpoints) {
    return {"--validation_data=" + test_csv(),
            "--evaluation_steps=10",
            "--checkpoint_steps=10",
            "--keep_checkpoint_max=1",
            "--checkpoint_dir=" + checkpoints(),
            "--model_params=await=" + checkpoints(),
            "--keep_state=false",
            "--failpoints=" + failpoints};
  }
  // A bit of it, which only its checksum tells. Returns the file.
  std::string Damage(int64_t version) {
    std::string file = absl::StrCat(checkpoints(), "/version-", version,
                                    "/variables-0-of-1.ckpt");
    std::string bytes = Contents(file);
    bytes[bytes.size() / 2] ^= 1;
    std::ofstream(file) << bytes;
    return file;
  }
};

// Visits of the failpoints per save: write 4 (variables, optimizer, ledger,
// manifest), fsync 6 (these, the folder, its parent), rename 1; delete 2 in the
// second save. A relaunched worker saves only once more and comes through.
class KillInSaveTest : public CheckpointKillTest,
                       public testing::WithParamInterface<const char*> {};

TEST_P(KillInSaveTest, TheJobGoesOnFromACompleteVersion) {
  const auto job = Train("save", SavingTwice(GetParam()));
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  const auto ended = job->Events("pod_ended");
  ASSERT_THAT(ended, Not(IsEmpty()));
  EXPECT_THAT(ended[0].at("reason").get<std::string>(), HasSubstr("signal 9"));
  EXPECT_TRUE(LedgerIsExact(job->audit(), 1));
  EXPECT_EQ(job->End().at("step"), 20);
  // One that the dead worker could not delete any more may be left beside it.
  EXPECT_EQ(Versions(checkpoints()).back(), 20);
  const auto evaluate =
      Evaluate("check", {"--checkpoint_dir_for_init=" + checkpoints()});
  ASSERT_EQ(evaluate->Wait(), 0) << evaluate->Output();
  EXPECT_EQ(evaluate->Events("evaluation")[0].at("metrics"),
            job->Events("evaluation").back().at("metrics"));
}

INSTANTIATE_TEST_SUITE_P(
    Points, KillInSaveTest,
    testing::Values("checkpoint.write=kill@5", "checkpoint.write=kill@8",
                    "checkpoint.fsync=kill@9", "checkpoint.fsync=kill@12",
                    "checkpoint.rename=kill@2", "checkpoint.delete=kill@1",
                    "checkpoint.delete=kill@2"),
    [](const testing::TestParamInfo<const char*>& info) {
      std::string name = info.param;
      for (char& c : name) {
        if (!isalnum(static_cast<unsigned char>(c))) c = '_';
      }
      return name;
    });

// The worker stops in the middle of the second save; then everything is killed.
TEST_F(CheckpointKillTest, NewJobResumesWhereTheKilledOneSaved) {
  Flags flags = SavingTwice("checkpoint.write=stop@6");
  // Otherwise the next master would go on with the job.
  flags.push_back("--master_timeout=0");
  const auto job = Train("first", flags);
  job->WaitForWorker(0);
  job->WaitForEvent("checkpoint");
  FolderWatch watch(checkpoints());
  ASSERT_TRUE(watch.Until([&] {
    for (const std::string& name : List(checkpoints())) {
      if (absl::StartsWith(name, ".tmp-version-20")) return true;
    }
    return false;
  })) << job->Output();
  const pid_t master = job->Events("job_start")[0].at("pid");
  ASSERT_EQ(kill(master, SIGKILL), 0);
  EXPECT_EQ(job->Wait(), 128 + SIGKILL);
  EXPECT_THAT(Versions(checkpoints()), ElementsAre(10));

  const auto next = Train(
      "second", {"--checkpoint_dir_for_init=" + checkpoints(),
                 "--checkpoint_steps=10", "--checkpoint_dir=" + checkpoints()});
  ASSERT_EQ(next->Wait(), 0) << next->Output();
  EXPECT_THAT(next->Log("0"),
              HasSubstr("restored " + checkpoints() + "/version-10"));
  EXPECT_EQ(next->End().at("step"), 20);
  // What the first job trained up to step 10 and the second one from there.
  const std::string both = Path("both.audit");
  std::ofstream(both) << Contents(job->audit()) << "{\"cut_back\":10}\n"
                      << Contents(next->audit());
  EXPECT_TRUE(LedgerIsExact(both, 1));
  EXPECT_THAT(List(checkpoints()), Not(Contains(HasSubstr(".tmp-version"))))
      << "scratch is left";
}

// Nothing waits for the last save but the job itself: it is not done before.
TEST_F(CheckpointKillTest, WorkerThatDiesInTheLastSaveIsReplaced) {
  const std::string gate = MakeGate();
  const auto job = Train(
      "last", {"--num_epochs=2", "--checkpoint_steps=20",
               "--checkpoint_dir=" + checkpoints(), "--output=" + Path("out"),
               absl::StrCat("--model_params=gate=", gate,
                            ";gate_step=35;train_end=", Path("end")),
               "--failpoints=checkpoint.rename=kill@2"});
  // So that the first save is not overtaken by the second.
  job->WaitForEvent("checkpoint");
  ASSERT_TRUE(WaitForGate(gate));
  OpenGate(gate);
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(job->Events("worker_lost"), SizeIs(1));
  EXPECT_THAT(Versions(checkpoints()), ElementsAre(20, 40));
  EXPECT_TRUE(LedgerIsExact(job->audit(), 2));
  EXPECT_THAT(Lines(Path("end")), SizeIs(1));
}

TEST_F(CheckpointKillTest, WithoutACompleteVersionTheJobSaysSo) {
  const auto job = Train("first", SavingTwice("checkpoint.rename=stop@1"));
  job->WaitForWorker(0);
  ASSERT_TRUE(WaitForFile(checkpoints()));
  FolderWatch watch(checkpoints());
  ASSERT_TRUE(watch.Until([&] { return !List(checkpoints()).empty(); }));
  job->process().Signal(SIGKILL);
  EXPECT_EQ(job->Wait(), 128 + SIGKILL);
  EXPECT_THAT(Versions(checkpoints()), IsEmpty());

  const auto next =
      Train("second", {"--checkpoint_dir_for_init=" + checkpoints()});
  EXPECT_EQ(next->Wait(), 1);
  EXPECT_THAT(next->process().err(), HasSubstr("--checkpoint_dir_for_init"));
  EXPECT_THAT(next->process().err(), HasSubstr(checkpoints()));
}

TEST_F(CheckpointKillTest, DamagedNewestVersionIsPassedOver) {
  const auto job = Train(
      "first", {"--validation_data=" + test_csv(), "--evaluation_steps=10",
                "--checkpoint_steps=10", "--checkpoint_dir=" + checkpoints(),
                "--model_params=await=" + checkpoints()});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  ASSERT_THAT(Versions(checkpoints()), ElementsAre(10, 20));
  Damage(20);
  const auto evaluate =
      Evaluate("newest", {"--checkpoint_dir_for_init=" + checkpoints()});
  ASSERT_EQ(evaluate->Wait(), 0) << evaluate->Output();
  EXPECT_EQ(evaluate->Events("evaluation")[0].at("metrics"),
            job->Events("evaluation")[0].at("metrics"));
  // By name, it is an error.
  const auto named = Evaluate(
      "named", {"--checkpoint_dir_for_init=" + checkpoints() + "/version-20"});
  EXPECT_EQ(named->Wait(), 1);
  EXPECT_THAT(named->process().err(), HasSubstr("variables-0-of-1.ckpt"));
}

// The worker that restores it finds it, not the master.
TEST_F(CheckpointKillTest, TrainingBeginsWithAnIntactVersion) {
  const auto job = Train(
      "first", {"--validation_data=" + test_csv(), "--evaluation_steps=10",
                "--checkpoint_steps=10", "--checkpoint_dir=" + checkpoints(),
                "--model_params=await=" + checkpoints()});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  ASSERT_THAT(Versions(checkpoints()), ElementsAre(10, 20));
  const std::string file = Damage(20);
  const auto next =
      Train("second",
            {"--checkpoint_dir_for_init=" + checkpoints(), "--num_epochs=2"});
  ASSERT_EQ(next->Wait(), 0) << next->Output();
  EXPECT_THAT(next->process().out(),
              HasSubstr("version-20 cannot be used: read " + file +
                        ": checksum differs"));
  EXPECT_THAT(next->Log("0"),
              HasSubstr("restored " + checkpoints() + "/version-10"));
  EXPECT_EQ(next->End().at("step"), 40);
  const std::string both = Path("both.audit");
  std::ofstream(both) << Contents(job->audit()) << "{\"cut_back\":10}\n"
                      << Contents(next->audit());
  EXPECT_TRUE(LedgerIsExact(both, 2));
  // By name, it is an error.
  const auto named = Train(
      "named", {"--checkpoint_dir_for_init=" + checkpoints() + "/version-20",
                "--num_epochs=2"});
  EXPECT_EQ(named->Wait(), 1);
  EXPECT_THAT(named->Output(), HasSubstr("--checkpoint_dir_for_init: read " +
                                         file + ": checksum differs"));
}

TEST_F(CheckpointKillTest, ARollbackPassesADamagedVersionOver) {
  const std::string gate = MakeGate();
  const auto job = Train(
      "job", {"--num_epochs=2", "--keep_state=false",
              "--validation_data=" + test_csv(), "--evaluation_steps=10",
              "--checkpoint_steps=10", "--checkpoint_dir=" + checkpoints(),
              absl::StrCat("--model_params=gate=", gate,
                           ";gate_step=25;await=", checkpoints())});
  ASSERT_TRUE(WaitForGate(gate));
  ASSERT_THAT(Versions(checkpoints()), ElementsAre(10, 20));
  const std::string file = Damage(20);
  // It waits at the gate; the next worker does not.
  ASSERT_EQ(kill(job->WaitForWorker(0), SIGKILL), 0);
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(job->process().out(),
              HasSubstr("version-20 cannot be used: read " + file));
  EXPECT_THAT(job->Log("1"),
              HasSubstr("restored " + checkpoints() + "/version-10"));
  EXPECT_EQ(job->End().at("step"), 40);
  EXPECT_TRUE(LedgerIsExact(job->audit(), 2));
  // It was saved again.
  const auto evaluate = Evaluate(
      "check", {"--checkpoint_dir_for_init=" + checkpoints() + "/version-20"});
  EXPECT_EQ(evaluate->Wait(), 0) << evaluate->Output();
}

}  // namespace
}  // namespace elasticdl::test
