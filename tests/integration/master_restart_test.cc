// The master is killed and started again: its workers have kept the model and
// their data, training goes on where it was, every record once.
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"
#include "support/small_disk.h"

namespace elasticdl::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MasterRestartTest : public ChaosTest {
 protected:
  // Of `elasticdl-master` by hand, on a port that stays the same.
  std::vector<std::string> MasterArgs(const Flags& more) {
    std::vector<std::string> argv = {
        Program("elasticdl-master"),
        "--job_name=test",
        "--model_zoo=" + Zoo(),
        "--model_def=linear.custom_model",
        absl::StrCat("--model_params=pace=", pace()),
        "--training_data=" + chaos_csv(),
        "--distribution_strategy=AllreduceStrategy",
        "--minibatch_size=8",
        "--num_minibatches_per_task=2",
        absl::StrCat("--num_epochs=", kEpochs),
        "--state_dir=" + Path("state"),
        "--event_log=" + Path("events"),
        "--ledger_audit=" + Path("audit"),
        "--master_timeout=60",
        "--worker_timeout=20",
        absl::StrCat("--port=", port_)};
    argv.insert(argv.end(), more.begin(), more.end());
    return argv;
  }

  void StartMaster(const Flags& more = {}) {
    const std::string name = absl::StrCat("master-", masters_++);
    master_ = Run(name, MasterArgs(more));
    LineFollower log(master_->err_path());
    while (const auto line = log.Next()) {
      if (line->find("listens on ") == std::string::npos) continue;
      ASSERT_TRUE(absl::SimpleAtoi(line->substr(line->rfind(':') + 1), &port_));
      return;
    }
    FAIL() << master_->err();
  }
  void KillMaster() {
    master_->Signal(SIGKILL);
    EXPECT_EQ(master_->Wait(), 128 + SIGKILL);
  }

  void StartWorkers(int count) {
    for (int i = 0; i < count; ++i) {
      const int id = static_cast<int>(workers_.size());
      workers_.push_back(
          Run(absl::StrCat("worker-", id),
              {Program("elasticdl-worker"), absl::StrCat("--worker_id=", id),
               absl::StrCat("--master_addr=localhost:", port_),
               "--state_dir=" + Path("state"), "--log_level=INFO"}));
    }
  }

  // All events so far, of all masters.
  std::vector<Json> Events(const std::string& wanted) {
    std::vector<Json> events;
    std::ifstream file(Path("events"));
    for (std::string line; std::getline(file, line);) {
      Json event = Json::parse(line, nullptr, false);
      if (event.value("event", "") == wanted) events.push_back(event);
    }
    return events;
  }
  bool WaitForEvents(const std::string& event, size_t count) {
    return FolderWatch(dir()).Until(
        [&] { return Events(event).size() >= count; });
  }
  bool WaitForCommits(size_t lines) {
    return FolderWatch(dir()).Until([&] {
      std::ifstream file(Path("audit"));
      size_t n = 0;
      for (std::string line; std::getline(file, line);) ++n;
      return n >= lines;
    });
  }

  void ExpectGoodEnd(const Flags& ledger = {}) {
    Go();
    EXPECT_EQ(master_->Wait(), 0) << Everything();
    for (auto& worker : workers_) {
      EXPECT_EQ(worker->Wait(), 0) << Everything();
    }
    Flags flags = {absl::StrCat("--epochs=", kEpochs),
                   absl::StrCat("--shard=", chaos_csv(), ":0:", kRecords)};
    flags.insert(flags.end(), ledger.begin(), ledger.end());
    EXPECT_TRUE(CheckLedger(Path("audit"), flags)) << Everything();
  }
  // The line about the last model is the same in all logs.
  void ExpectEqualModels() {
    std::string first;
    for (auto& worker : workers_) {
      const std::string log = worker->err();
      const size_t at = log.rfind("model of step ");
      ASSERT_NE(at, std::string::npos) << log;
      const std::string line = log.substr(at, log.find('\n', at) - at);
      if (first.empty()) first = line;
      EXPECT_EQ(line, first);
    }
  }
  std::string Everything() {
    std::string text = absl::StrCat("== master\n", master_->err());
    for (auto& worker : workers_) {
      absl::StrAppend(&text, "== worker\n", worker->err());
    }
    return text;
  }

  int masters_ = 0;
  int port_ = 0;
  std::unique_ptr<ChildProcess> master_;
  std::vector<std::unique_ptr<ChildProcess>> workers_;
};

TEST_F(MasterRestartTest, TrainingGoesOnWithTheSameWorkers) {
  StartMaster();
  StartWorkers(2);
  ASSERT_TRUE(WaitForCommits(10)) << Everything();
  KillMaster();
  StartMaster();
  const size_t worlds = Events("world").size();
  ASSERT_TRUE(WaitForEvents("world", worlds + 1)) << Everything();
  ExpectGoodEnd();
  ExpectEqualModels();
  EXPECT_THAT(master_->err(), HasSubstr("the master is back at step "));
  for (auto& worker : workers_) {
    EXPECT_THAT(worker->err(), HasSubstr("the master is back"));
    EXPECT_THAT(worker->err(), Not(HasSubstr("restored")));
  }
}

TEST_F(MasterRestartTest, ManyTimes) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  StartMaster();
  StartWorkers(2);
  Walk();
  size_t commits = 5;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(WaitForCommits(commits)) << Everything();
    KillMaster();
    commits += 5 + random() % 20;
    StartMaster();
  }
  ExpectGoodEnd();
  ExpectEqualModels();
}

TEST_F(MasterRestartTest, AWorkerThatDiesMeanwhileIsLostForGood) {
  StartMaster({"--worker_timeout=2"});
  StartWorkers(3);
  ASSERT_TRUE(FolderWatch(dir()).Until([&] {
    const auto worlds = Events("world");
    return !worlds.empty() && worlds.back().at("members").size() == 3;
  })) << Everything();
  ASSERT_TRUE(WaitForCommits(10)) << Everything();
  KillMaster();
  workers_[1]->Signal(SIGKILL);
  EXPECT_EQ(workers_[1]->Wait(), 128 + SIGKILL);
  workers_.erase(workers_.begin() + 1);
  StartMaster({"--worker_timeout=2"});
  ExpectGoodEnd();
  ExpectEqualModels();
  EXPECT_THAT(master_->err(), HasSubstr("worker 1"));
}

TEST_F(MasterRestartTest, AnotherWorkerMayComeWhileItIsAway) {
  StartMaster();
  StartWorkers(1);
  ASSERT_TRUE(WaitForCommits(10)) << Everything();
  KillMaster();
  StartMaster();
  StartWorkers(1);
  ASSERT_TRUE(FolderWatch(dir()).Until([&] {
    const auto worlds = Events("world");
    return worlds.back().at("members").size() == 2;
  })) << Everything();
  ExpectGoodEnd();
  ExpectEqualModels();
}

TEST_F(MasterRestartTest, WithAllWorkersGoneItFallsBackToTheCheckpoint) {
  const Flags flags = {"--checkpoint_dir=" + Path("checkpoints"),
                       "--checkpoint_steps=10", "--worker_timeout=2",
                       "--min_workers=2"};
  StartMaster(flags);
  StartWorkers(2);
  ASSERT_TRUE(WaitForEvents("checkpoint", 1)) << Everything();
  KillMaster();
  for (auto& worker : workers_) {
    worker->Signal(SIGKILL);
    EXPECT_EQ(worker->Wait(), 128 + SIGKILL);
  }
  workers_.clear();
  StartMaster(flags);
  StartWorkers(2);
  ExpectGoodEnd();
  ExpectEqualModels();
  EXPECT_THAT(workers_[0]->err() + workers_[1]->err(),
              HasSubstr("restored " + Path("checkpoints")));
}

TEST_F(MasterRestartTest, DuringAnEvaluation) {
  const Flags flags = {"--validation_data=" + test_csv(),
                       "--evaluation_steps=10"};
  StartMaster(flags);
  StartWorkers(2);
  ASSERT_TRUE(FolderWatch(dir()).Until([&] {
    return workers_[0]->err().find("step 10") != std::string::npos ||
           !Events("evaluation").empty();
  }));
  KillMaster();
  StartMaster(flags);
  ExpectGoodEnd();
  ExpectEqualModels();
  const auto evaluations = Events("evaluation");
  ASSERT_FALSE(evaluations.empty());
  // The last model, and no step twice.
  EXPECT_EQ(evaluations.back().at("step"), Events("job_end").back().at("step"));
  for (size_t i = 1; i < evaluations.size(); ++i) {
    EXPECT_GT(evaluations[i].at("step"), evaluations[i - 1].at("step"));
  }
}

TEST_F(MasterRestartTest, AJobThatHasEndedStaysEnded) {
  StartMaster();
  StartWorkers(1);
  ExpectGoodEnd();
  master_ = Run("again", MasterArgs({}));
  EXPECT_EQ(master_->Wait(), 0) << master_->err();
  EXPECT_THAT(master_->err(), Not(HasSubstr("waiting for workers")));
}

TEST_F(MasterRestartTest, AWorkerThatWasGivenUpMeanwhileEnds) {
  StartMaster({"--worker_timeout=2"});
  StartWorkers(2);
  ASSERT_TRUE(WaitForCommits(10)) << Everything();
  workers_[1]->Signal(SIGSTOP);
  KillMaster();
  StartMaster({"--worker_timeout=2"});
  ASSERT_TRUE(WaitForEvents("worker_lost", 1)) << Everything();
  workers_[1]->Signal(SIGCONT);
  EXPECT_EQ(workers_[1]->Wait(), 3) << Everything();
  EXPECT_THAT(workers_[1]->err(), HasSubstr("evicted"));
  workers_.pop_back();
  ExpectGoodEnd();
}

// A path that is on no volume, after the container was restarted.
TEST_F(MasterRestartTest, ALostAuditCostsTheAuditNotTheJob) {
  StartMaster();
  StartWorkers(2);
  ASSERT_TRUE(WaitForCommits(10)) << Everything();
  KillMaster();
  ASSERT_EQ(unlink(Path("audit").c_str()), 0);
  StartMaster();
  Go();
  EXPECT_EQ(master_->Wait(), 0) << Everything();
  for (auto& worker : workers_) EXPECT_EQ(worker->Wait(), 0) << Everything();
  EXPECT_THAT(master_->err(), HasSubstr("--ledger_audit is incomplete"));
  EXPECT_TRUE(FileExists(Path("audit")));
}

class FullDiskTest : public MasterRestartTest {
 protected:
  void SetUp() override {
    MasterRestartTest::SetUp();
    ASSERT_TRUE(MakeDirectories(Path("state")).ok());
    mounted_ = MountSmallDisk(Path("state"), "1m");
    if (!mounted_) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  }
  void TearDown() override {
    MasterRestartTest::TearDown();
    if (mounted_) umount2(Path("state").c_str(), MNT_DETACH);
  }
  void FillDisk() {
    std::ofstream filler(Path("state/filler"));
    const std::string page(4096, 'x');
    while (filler << page << std::flush) {
    }
  }
  bool WaitForMasterToSay(const std::string& text) {
    LineFollower log(master_->err_path());
    while (const auto line = log.Next()) {
      if (line->find(text) != std::string::npos) return true;
    }
    return false;
  }
  bool mounted_ = false;
};

TEST_F(FullDiskTest, TheJournalIsMadeGoodWhenThereIsSpace) {
  StartMaster();
  StartWorkers(2);
  Walk();
  ASSERT_TRUE(WaitForCommits(10)) << Everything();
  FillDisk();
  ASSERT_TRUE(WaitForMasterToSay("the journal cannot be written"))
      << Everything();
  ASSERT_EQ(unlink(Path("state/filler").c_str()), 0);
  ASSERT_TRUE(WaitForMasterToSay("the journal is complete again"))
      << Everything();
  KillMaster();
  StartMaster();
  ExpectGoodEnd();
  ExpectEqualModels();
  for (auto& worker : workers_) {
    EXPECT_THAT(worker->err(), Not(HasSubstr("restored")));
  }
}

TEST_F(FullDiskTest, AMasterThatDiesMeanwhileLeavesTheCheckpoints) {
  const Flags flags = {"--checkpoint_dir=" + Path("checkpoints"),
                       "--checkpoint_steps=5", "--min_workers=2"};
  StartMaster(flags);
  StartWorkers(2);
  Walk();
  ASSERT_TRUE(WaitForEvents("checkpoint", 2)) << Everything();
  FillDisk();
  ASSERT_TRUE(WaitForMasterToSay("the journal cannot be written"))
      << Everything();
  ASSERT_TRUE(WaitForEvents("checkpoint", Events("checkpoint").size() + 2))
      << Everything();
  KillMaster();
  ASSERT_EQ(unlink(Path("state/filler").c_str()), 0);
  StartMaster(flags);
  // They know more than the journal.
  for (auto& worker : workers_) {
    EXPECT_NE(worker->Wait(), 0);
    EXPECT_THAT(worker->err(), HasSubstr("evicted"));
  }
  workers_.clear();
  StartWorkers(2);
  ExpectGoodEnd();
  ExpectEqualModels();
  EXPECT_THAT(workers_[0]->err() + workers_[1]->err(),
              HasSubstr("restored " + Path("checkpoints")));
}

}  // namespace
}  // namespace elasticdl::test
