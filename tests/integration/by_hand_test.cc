// A master in one terminal and a worker in another, with the old flags.
#include <signal.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Ne;
using ::testing::Not;

class ByHandTest : public JobTest {
 protected:
  void SetUp() override {
    for (const char* name : {"train", "test"}) {
      const auto convert =
          Run("convert", {Program("elasticdl"), "data", "convert",
                          Path(absl::StrCat(name, ".csv")),
                          "--output=" + Path(absl::StrCat("data/", name))});
      ASSERT_EQ(convert->Wait(), 0) << convert->err();
    }
  }

  // The command of the old documentation; the port is any free one.
  std::unique_ptr<ChildProcess> StartMaster(const Flags& more = {}) {
    std::vector<std::string> argv = {
        Program("elasticdl-master"),
        "--model_file=" + Zoo() + "/linear.py",
        "--job_name=test",
        "--training_data_dir=" + Path("data/train"),
        "--evaluation_data_dir=" + Path("data/test"),
        "--records_per_task=100",
        "--num_epochs=2",
        "--codec_type=tf_example",
        "--grads_to_wait=2",
        "--minibatch_size=10",
        "--log_level=INFO",
        "--port=0",
        "--ledger_audit=" + Path("audit")};
    argv.insert(argv.end(), more.begin(), more.end());
    auto master = Run("master", argv);
    // "listens on HOST:PORT"
    LineFollower log(master->err_path());
    while (const auto line = log.Next()) {
      if (line->find("listens on ") == std::string::npos) continue;
      address_ = "localhost:" + line->substr(line->rfind(':') + 1);
      break;
    }
    EXPECT_THAT(address_, Not(HasSubstr(" "))) << master->err();
    return master;
  }

  std::unique_ptr<ChildProcess> StartWorker(const std::string& name,
                                            const Flags& more = {}) {
    std::vector<std::string> argv = {Program("elasticdl-worker"),
                                     "--worker_id=1",
                                     "--model_file=" + Zoo() + "/linear.py",
                                     "--codec_type=tf_example",
                                     "--master_addr=" + address_,
                                     "--log_level=INFO"};
    argv.insert(argv.end(), more.begin(), more.end());
    return Run(name, argv);
  }

  testing::AssertionResult LedgerIsExact() {
    return CheckLedger(
        Path("audit"),
        {"--epochs=2", absl::StrCat("--shard=", Path("data/train/data-00000"),
                                    ":0:", kTrainRecords)});
  }

  std::string address_;
};

TEST_F(ByHandTest, MasterAndWorkerTrainAsTheOldDocumentationSays) {
  const auto master = StartMaster();
  const auto worker = StartWorker("worker");
  EXPECT_EQ(master->Wait(), 0) << master->err() << worker->err();
  EXPECT_EQ(worker->Wait(), 0) << worker->err();
  EXPECT_TRUE(LedgerIsExact());
  EXPECT_THAT(master->out(), AllOf(HasSubstr("evaluation at step 64: "),
                                   HasSubstr("job test succeeded")));
  // One hint per old name.
  EXPECT_THAT(master->err(), AllOf(HasSubstr("--model_def=linear.custom_model"),
                                   HasSubstr("--num_minibatches_per_task=10"),
                                   HasSubstr("--codec_type")));
}

TEST_F(ByHandTest, AnotherWorkerTakesOver) {
  const std::string gate = MakeGate();
  const auto master = StartMaster(
      {absl::StrCat("--model_params=gate=", gate, ";gate_step=30")});
  const auto worker = StartWorker("worker");
  ASSERT_TRUE(WaitForGate(gate));
  worker->Signal(SIGKILL);
  EXPECT_EQ(worker->Wait(), 128 + SIGKILL);
  const auto next = StartWorker("next", {"--worker_id=2"});
  EXPECT_EQ(master->Wait(), 0) << master->err() << next->err();
  EXPECT_EQ(next->Wait(), 0) << next->err();
  EXPECT_TRUE(LedgerIsExact());
}

TEST_F(ByHandTest, WorkerEndsWhenItsMasterIsKilled) {
  const std::string gate = MakeGate();
  const auto master = StartMaster(
      {absl::StrCat("--model_params=gate=", gate, ";gate_step=30")});
  const auto worker = StartWorker("worker");
  ASSERT_TRUE(WaitForGate(gate));
  master->Signal(SIGKILL);
  EXPECT_EQ(master->Wait(), 128 + SIGKILL);
  OpenGate(gate);
  EXPECT_EQ(worker->Wait(), 3) << worker->err();
}

TEST_F(ByHandTest, CtrlCOfTheMasterEndsTheWorker) {
  const std::string gate = MakeGate();
  const auto master = StartMaster(
      {absl::StrCat("--model_params=gate=", gate, ";gate_step=30")});
  const auto worker = StartWorker("worker");
  ASSERT_TRUE(WaitForGate(gate));
  master->Signal(SIGINT);
  OpenGate(gate);
  EXPECT_EQ(worker->Wait(), 0) << worker->err();
  EXPECT_EQ(master->Wait(), 1) << master->err();
  EXPECT_THAT(master->err(), HasSubstr("job test stopped"));
}

TEST_F(ByHandTest, WrongTokenIsRefused) {
  const auto master = StartMaster();
  std::ofstream(Path("token")) << std::string(64, 'a') << "\n";
  const auto thief = StartWorker("thief", {"--token_file=" + Path("token")});
  EXPECT_THAT(thief->Wait(), Ne(0));
  EXPECT_THAT(thief->err(), HasSubstr("token"));
  // Refused and logged; the job itself is not disturbed.
  const auto worker = StartWorker("worker");
  EXPECT_EQ(master->Wait(), 0) << master->err() << worker->err();
  EXPECT_EQ(worker->Wait(), 0) << worker->err();
  EXPECT_THAT(master->err(), HasSubstr("token"));
  EXPECT_THAT(master->err(), Not(HasSubstr(std::string(64, 'a'))));
  EXPECT_TRUE(LedgerIsExact());
}

TEST_F(ByHandTest, WorkerWithoutMasterSaysSo) {
  address_ = "localhost:1";
  const auto worker = StartWorker("worker");
  EXPECT_THAT(worker->Wait(), Ne(0));
  EXPECT_THAT(worker->err(), HasSubstr("localhost:1"));
}

}  // namespace
}  // namespace elasticdl::test
