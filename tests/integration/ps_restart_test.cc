// The master of a job with parameter servers is killed and started again:
// workers and servers have kept what they had, and every record is in the model
// once. The model counts (zoo/tally.cc).
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"
#include "integration/tally_replay.h"

namespace elasticdl::test {
namespace {

class PsRestartTest : public ChaosTest,
                      public testing::WithParamInterface<Flags> {
 protected:
  void StartMaster() {
    Flags args = {Program("elasticdl-master"),
                  "--job_name=test",
                  "--model_zoo=" + Zoo(),
                  "--model_def=tally.custom_model",
                  "--model_params=pace=" + pace(),
                  "--training_data=" + chaos_csv(),
                  "--validation_data=" + chaos_csv(),
                  "--distribution_strategy=ParameterServerStrategy",
                  "--num_ps_pods=2",
                  "--minibatch_size=8",
                  "--num_minibatches_per_task=2",
                  absl::StrCat("--num_epochs=", kEpochs),
                  "--state_dir=" + Path("state"),
                  "--event_log=" + Path("events"),
                  "--ledger_audit=" + Path("audit"),
                  "--checkpoint_dir=" + Path("saved"),
                  "--master_timeout=60",
                  "--worker_timeout=20",
                  absl::StrCat("--port=", port_)};
    args.insert(args.end(), GetParam().begin(), GetParam().end());
    master_ = Run(absl::StrCat("master-", masters_++), args);
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
  void StartOthers() {
    // The last thing that a master writes; the others look for it there.
    ASSERT_TRUE(WaitForFile(Path("state/jobs/test/http_address")));
    for (int id = 0; id < 2; ++id) {
      StartServer(id);
      others_.push_back(
          Run(absl::StrCat("worker-", id),
              {Program("elasticdl-worker"), absl::StrCat("--worker_id=", id),
               absl::StrCat("--master_addr=localhost:", port_),
               "--state_dir=" + Path("state"), "--log_level=INFO"}));
    }
    // They look for a job that runs: not while its master is being killed.
    WaitForMasterLine("worker 0 is ready");
    WaitForMasterLine("worker 1 is ready");
  }
  void StartServer(int id) {
    others_.push_back(
        Run(absl::StrCat("ps-", id),
            {Program("elasticdl-ps"), absl::StrCat("--ps_id=", id), "--port=0",
             absl::StrCat("--master_addr=localhost:", port_),
             "--state_dir=" + Path("state")}));
  }
  void ScaleServers(int servers) {
    const auto scale =
        Run("scale", {Program("elasticdl"), "scale", "--job_name=test",
                      "--state_dir=" + Path("state"),
                      absl::StrCat("--num_ps_pods=", servers)});
    ASSERT_EQ(scale->Wait(), 0) << scale->err() << Everything();
  }
  // So many moves are complete.
  bool WaitForMoves(int moves) {
    return FolderWatch(dir()).Until([&] {
      int ended = 0;
      for (const std::string& line : Lines(Path("events"))) {
        ended += Json::parse(line).at("event") == "ps_scaled";
      }
      return ended >= moves;
    });
  }
  void WaitForMasterLine(const std::string& text) {
    LineFollower log(master_->err_path());
    while (const auto line = log.Next()) {
      if (line->find(text) != std::string::npos) return;
    }
    FAIL() << text << " is not said; " << Everything();
  }
  // The job ends well, and every record is in the model once.
  void Finish() {
    Go();
    EXPECT_EQ(master_->Wait(), 0) << Everything();
    for (auto& other : others_) EXPECT_EQ(other->Wait(), 0) << Everything();
    EXPECT_TRUE(
        CheckLedger(Path("audit"),
                    {absl::StrCat("--epochs=", kEpochs),
                     absl::StrCat("--shard=", chaos_csv(), ":0:", kRecords)}))
        << Everything();
    std::map<std::string, double> metrics;
    for (const std::string& line : Lines(Path("events"))) {
      const Json event = Json::parse(line);
      if (event.at("event") == "evaluation") {
        metrics = event.at("metrics").get<std::map<std::string, double>>();
      }
    }
    EXPECT_EQ(metrics["least"], -kRecords / 8 * kEpochs) << Everything();
    EXPECT_EQ(metrics["most"], -kRecords / 8 * kEpochs);
    EXPECT_EQ(metrics["row"], -kEpochs);
    EXPECT_EQ(metrics["row_squared"], kEpochs * kEpochs);
    const Flags& mode = GetParam();
    TallyReplay replay(
        /*async=*/std::count(mode.begin(), mode.end(), "--use_async") > 0);
    replay.Train(Path("audit"));
    EXPECT_EQ(replay.Compare(Path("saved")), "") << Everything();
  }
  bool WaitForCommits(size_t lines) {
    return FolderWatch(dir()).Until(
        [&] { return Lines(Path("audit")).size() >= lines; });
  }
  std::string Everything() {
    std::string text = absl::StrCat("== master\n", master_->err());
    for (auto& other : others_) {
      absl::StrAppend(&text, "== another\n", other->err());
    }
    return text;
  }

  int masters_ = 0;
  int port_ = 0;
  std::unique_ptr<ChildProcess> master_;
  std::vector<std::unique_ptr<ChildProcess>> others_;
};

// In all modes a version is one minibatch.
std::string ModeName(const testing::TestParamInfo<Flags>& info) {
  return info.index % 2 == 0 ? "Async" : "Sync";
}

const auto kAlone =
    testing::Values(Flags{"--use_async"}, Flags{"--grads_to_wait=1"});
const auto kWithBackups =
    testing::Values(Flags{"--use_async", "--ps_backup=1"},
                    Flags{"--grads_to_wait=1", "--ps_backup=1"});

INSTANTIATE_TEST_SUITE_P(Alone, PsRestartTest, kAlone, ModeName);
INSTANTIATE_TEST_SUITE_P(WithBackups, PsRestartTest, kWithBackups, ModeName);

// Nothing moves with a backup.
class PsRestartMoveTest : public PsRestartTest {};
INSTANTIATE_TEST_SUITE_P(Alone, PsRestartMoveTest, kAlone, ModeName);

// Only a backup makes up for a log that is lost.
class PsRestartLossTest : public PsRestartTest {};
INSTANTIATE_TEST_SUITE_P(WithBackups, PsRestartLossTest, kWithBackups,
                         ModeName);

TEST_P(PsRestartTest, TrainingGoesOn) {
  StartMaster();
  StartOthers();
  Walk();
  ASSERT_TRUE(WaitForCommits(10)) << Everything();
  for (size_t commits = 10; commits <= 90; commits += 40) {
    KillMaster();
    StartMaster();
    ASSERT_TRUE(WaitForCommits(commits + 30)) << Everything();
  }
  Finish();
}

TEST_P(PsRestartMoveTest, InTheMiddleOfAMove) {
  StartMaster();
  StartOthers();
  Stroll();
  ASSERT_TRUE(WaitForCommits(10)) << Everything();
  ScaleServers(3);
  StartServer(2);
  WaitForMasterLine("buckets move to 3 parameter servers");
  KillMaster();
  StartMaster();
  ASSERT_TRUE(WaitForMoves(1)) << Everything();
  ScaleServers(1);
  WaitForMasterLine("buckets move to 1 parameter server");
  KillMaster();
  StartMaster();
  ASSERT_TRUE(WaitForMoves(2)) << Everything();
  Finish();
}

// Server 0 and its logs are gone when the next master comes.
TEST_P(PsRestartLossTest, AServerIsLostWithTheMaster) {
  StartMaster();
  StartOthers();
  Walk();
  ASSERT_TRUE(WaitForCommits(10)) << Everything();
  // Of both parts.
  ASSERT_TRUE(FolderWatch(dir()).Until([&] {
    int64_t current = 0;
    for (const std::string& line : Lines(Path("events"))) {
      current += Json::parse(line).at("event") == "ps_backup_current";
    }
    return current >= 2;
  })) << Everything();
  KillMaster();
  others_[0]->Signal(SIGKILL);
  EXPECT_EQ(others_[0]->Wait(), 128 + SIGKILL);
  const std::string root = Path("state/jobs/test/ps");
  for (const std::string& run : List(root)) {
    for (const char* folder : {"ps-0", "ps-1-on-0"}) {
      EXPECT_TRUE(RemoveTree(JoinPath(JoinPath(root, run), folder)).ok());
    }
  }
  StartMaster();
  others_[0] =
      Run("ps-0-again", {Program("elasticdl-ps"), "--ps_id=0", "--port=0",
                         absl::StrCat("--master_addr=localhost:", port_),
                         "--state_dir=" + Path("state")});
  ASSERT_TRUE(WaitForCommits(60)) << Everything();
  Finish();
}

}  // namespace
}  // namespace elasticdl::test
