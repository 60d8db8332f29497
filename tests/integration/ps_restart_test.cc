// The master of a job with parameter servers is killed and started again:
// workers and servers have kept what they had, and every record is in the model
// once. The model counts (zoo/tally.cc).
#include <signal.h>

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"

namespace elasticdl::test {
namespace {

class PsRestartTest : public ChaosTest,
                      public testing::WithParamInterface<const char*> {
 protected:
  void StartMaster() {
    master_ = Run(
        absl::StrCat("master-", masters_++),
        {Program("elasticdl-master"), "--job_name=test", "--model_zoo=" + Zoo(),
         "--model_def=tally.custom_model", "--model_params=pace=" + pace(),
         "--training_data=" + chaos_csv(), "--validation_data=" + chaos_csv(),
         "--distribution_strategy=ParameterServerStrategy", "--num_ps_pods=2",
         GetParam(), "--minibatch_size=8", "--num_minibatches_per_task=2",
         absl::StrCat("--num_epochs=", kEpochs), "--state_dir=" + Path("state"),
         "--event_log=" + Path("events"), "--ledger_audit=" + Path("audit"),
         "--master_timeout=60", "--worker_timeout=20",
         absl::StrCat("--port=", port_)});
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
    const std::string master = absl::StrCat("--master_addr=localhost:", port_);
    for (int id = 0; id < 2; ++id) {
      others_.push_back(
          Run(absl::StrCat("ps-", id),
              {Program("elasticdl-ps"), absl::StrCat("--ps_id=", id),
               "--port=0", master, "--state_dir=" + Path("state")}));
      others_.push_back(
          Run(absl::StrCat("worker-", id),
              {Program("elasticdl-worker"), absl::StrCat("--worker_id=", id),
               master, "--state_dir=" + Path("state"), "--log_level=INFO"}));
    }
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

// In both modes a version is one minibatch.
INSTANTIATE_TEST_SUITE_P(Modes, PsRestartTest,
                         testing::Values("--use_async", "--grads_to_wait=1"),
                         [](const auto& info) {
                           return info.index == 0 ? "Async" : "Sync";
                         });

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
  Go();
  EXPECT_EQ(master_->Wait(), 0) << Everything();
  for (auto& other : others_) EXPECT_EQ(other->Wait(), 0) << Everything();
  EXPECT_TRUE(CheckLedger(
      Path("audit"), {absl::StrCat("--epochs=", kEpochs),
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
}

}  // namespace
}  // namespace elasticdl::test
