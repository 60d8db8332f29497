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
using ::testing::ElementsAre;
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
  // `within` is a command that runs another one.
  std::unique_ptr<ChildProcess> StartMaster(const Flags& more = {},
                                            const Flags& within = {}) {
    std::vector<std::string> argv = within;
    const Flags command = {Program("elasticdl-master"),
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
    argv.insert(argv.end(), command.begin(), command.end());
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
                                            const Flags& more = {},
                                            const Flags& within = {}) {
    std::vector<std::string> argv = within;
    const Flags command = {Program("elasticdl-worker"),
                           "--worker_id=1",
                           "--model_file=" + Zoo() + "/linear.py",
                           "--codec_type=tf_example",
                           "--master_addr=" + address_,
                           "--log_level=INFO"};
    argv.insert(argv.end(), command.begin(), command.end());
    argv.insert(argv.end(), more.begin(), more.end());
    return Run(name, argv);
  }

  // What `docker run --net=host` makes of a program, for `within` of the
  // functions above: it sees neither processes nor shared memory nor state of
  // the others, but has their network.
  Flags Container(const std::string& name, const Flags& environment) const {
    Flags all = {"unshare",
                 "--mount",
                 "--pid",
                 "--fork",
                 "--kill-child",
                 "--mount-proc",
                 "sh",
                 "-c",
                 "mount -t tmpfs tmpfs /dev/shm && exec \"$@\"",
                 "sh",
                 "env",
                 "XDG_STATE_HOME=" + Path(name)};
    all.insert(all.end(), environment.begin(), environment.end());
    return all;
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

// It ends that worker; the job waits for one that can do it.
TEST_F(ByHandTest, AMistypedModelEndsItsWorkerOnly) {
  const auto master = StartMaster();
  const auto wrong = StartWorker(
      "wrong", {"--worker_id=-1", "--model_file=/nowhere/liner.py"});
  EXPECT_EQ(wrong->Wait(), 1);
  EXPECT_THAT(wrong->err(), AllOf(HasSubstr("this worker's own --model_zoo"),
                                  HasSubstr("liner"), HasSubstr("[worker 0]"),
                                  Not(HasSubstr("worker -1"))));
  const auto worker = StartWorker("worker");
  EXPECT_EQ(master->Wait(), 0) << master->err() << worker->err();
  EXPECT_EQ(worker->Wait(), 0) << worker->err();
  EXPECT_TRUE(LedgerIsExact());
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

// As in another container: the worker does not see the folder of the job.
TEST_F(ByHandTest, BothAreGivenTheTokenInTheEnvironment) {
  const std::string token(32, 't');
  const std::string variable = "ELASTICDL_TOKEN=" + token;
  const auto master = StartMaster({}, {"env", variable});
  const std::string elsewhere = "XDG_STATE_HOME=" + Path("elsewhere");
  const auto lost = StartWorker("lost", {}, {"env", elsewhere});
  EXPECT_EQ(lost->Wait(), 1);
  EXPECT_THAT(lost->err(),
              AllOf(HasSubstr("ELASTICDL_TOKEN"), HasSubstr("--token_file")));
  const auto thief = StartWorker(
      "thief", {},
      {"env", elsewhere, "ELASTICDL_TOKEN=" + std::string(32, 'x')});
  EXPECT_EQ(thief->Wait(), 3);
  EXPECT_THAT(thief->err(), HasSubstr("ELASTICDL_TOKEN"));
  // Clients on the master's machine find it where they always look.
  EXPECT_EQ(Contents(Path("state/elasticdl/jobs/test/token")), token + "\n");
  const auto worker = StartWorker("worker", {}, {"env", elsewhere, variable});
  EXPECT_EQ(master->Wait(), 0) << master->err() << worker->err();
  EXPECT_EQ(worker->Wait(), 0) << worker->err();
  EXPECT_TRUE(LedgerIsExact());
  EXPECT_THAT(master->err(), Not(HasSubstr(token)));
}

TEST_F(ByHandTest, EachInAContainerOfItsOwn) {
  const auto probe = Run("probe", [this] {
    Flags argv = Container("probe", {});
    argv.push_back("true");
    return argv;
  }());
  if (probe->Wait() != 0) GTEST_SKIP() << "no containers: " << probe->err();
  const Flags environment = {"ELASTICDL_TOKEN=" + std::string(32, 't')};
  const auto master = StartMaster({"--num_workers=2", "--min_workers=2"},
                                  Container("container-m", environment));
  const auto first =
      StartWorker("worker", {}, Container("container-1", environment));
  const auto second = StartWorker("second", {"--worker_id=2"},
                                  Container("container-2", environment));
  EXPECT_EQ(master->Wait(), 0) << master->err();
  EXPECT_EQ(first->Wait(), 0) << first->err();
  EXPECT_EQ(second->Wait(), 0) << second->err();
  EXPECT_TRUE(LedgerIsExact());
  EXPECT_THAT(master->out(), HasSubstr("2 workers (")) << master->err();
}

TEST_F(ByHandTest, BothAreGivenATokenFile) {
  std::ofstream(Path("token")) << std::string(40, 'f') << "\n";
  const std::string flag = "--token_file=" + Path("token");
  const auto master = StartMaster({flag});
  const auto worker = StartWorker(
      "worker", {flag}, {"env", "XDG_STATE_HOME=" + Path("elsewhere")});
  EXPECT_EQ(master->Wait(), 0) << master->err() << worker->err();
  EXPECT_EQ(worker->Wait(), 0) << worker->err();
  EXPECT_TRUE(LedgerIsExact());
}

TEST_F(ByHandTest, ATokenThatCanBeGuessedIsRefused) {
  const auto worker = Run(
      "worker", {"env", "ELASTICDL_TOKEN=secret", Program("elasticdl-worker")});
  EXPECT_EQ(worker->Wait(), 1);
  EXPECT_THAT(worker->err(),
              AllOf(HasSubstr("ELASTICDL_TOKEN: the token has 6 characters"),
                    HasSubstr("openssl rand")));
}

TEST_F(ByHandTest, ATakenPortIsToldInOneLine) {
  const auto master = StartMaster();
  const std::string port = address_.substr(address_.rfind(':') + 1);
  const auto second = Run(
      "second", {Program("elasticdl-master"), "--model_def=linear.custom_model",
                 "--model_zoo=" + Zoo(), "--job_name=second",
                 "--training_data=" + Path("data/train"), "--port=" + port});
  EXPECT_EQ(second->Wait(), 1);
  std::vector<std::string> about;
  for (const std::string& line : Lines(second->err_path())) {
    if (line.find("[info]") == std::string::npos) about.push_back(line);
  }
  EXPECT_THAT(about,
              ElementsAre(AllOf(HasSubstr("cannot listen on 0.0.0.0:" + port),
                                HasSubstr("the port is taken"))));
  const auto worker = StartWorker("worker");
  EXPECT_EQ(master->Wait(), 0) << master->err() << worker->err();
  EXPECT_EQ(worker->Wait(), 0) << worker->err();
}

TEST_F(ByHandTest, WorkerWithoutMasterSaysSo) {
  address_ = "localhost:1";
  const auto worker = StartWorker("worker");
  EXPECT_THAT(worker->Wait(), Ne(0));
  EXPECT_THAT(worker->err(), HasSubstr("localhost:1"));
}

}  // namespace
}  // namespace elasticdl::test
