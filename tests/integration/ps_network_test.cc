// Parameter servers on other hosts than workers and master, whose network is
// cut for a while: the job goes on, and every record is in the model once on
// every server (zoo/tally.cc).
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"
#include "integration/network.h"
#include "integration/tally_replay.h"

namespace elasticdl::test {
namespace {

constexpr int kMasterHost = 1;
constexpr int kServers = 2;
constexpr int kWorkers = 2;
int HostOfServer(int id) { return 2 + id; }
int HostOfWorker(int id) { return 2 + kServers + id; }

// Longer than the master waits for a sign of life.
constexpr absl::Duration kLongCut = absl::Seconds(6);
constexpr absl::Duration kShortCut = absl::Seconds(2);

class PsNetworkTest : public ChaosTest,
                      public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    ChaosTest::SetUp();
    constexpr uint32_t kSeed = 78;
    auto network = Network::Create(1 + kServers + kWorkers, dir(), kSeed);
    if (!network.ok()) {
      GTEST_SKIP() << "no hosts here: " << network.status().message();
    }
    network_ = *std::move(network);
    StartMaster();
    for (int id = 0; id < kServers; ++id) StartServer(id);
    for (int id = 0; id < kWorkers; ++id) StartWorker(id);
    Walk();
  }
  void TearDown() override {
    for (const auto& other : others_) other->Wait();
    others_.clear();
    ChaosTest::TearDown();
  }

  void StartMaster() {
    job_ = std::make_unique<Job>(
        MakeOptions(
            "chaos",
            network_->OnHost(
                kMasterHost,
                {Program("elasticdl-master"), "--job_name=chaos",
                 "--pod_backend=none",
                 "--distribution_strategy=ParameterServerStrategy",
                 absl::StrCat("--num_ps_pods=", kServers), GetParam(),
                 "--model_zoo=" + Zoo(), "--model_def=tally.custom_model",
                 "--model_params=pace=" + pace(),
                 "--training_data=" + chaos_csv(),
                 "--validation_data=" + chaos_csv(), "--minibatch_size=8",
                 "--num_minibatches_per_task=2",
                 absl::StrCat("--num_epochs=", kEpochs), "--num_threads=1",
                 // Whoever is cut off from the master comes back to it.
                 "--worker_timeout=3", "--master_timeout=60", "--port=0",
                 "--event_log=" + Path("chaos.events"),
                 "--checkpoint_dir=" + Path("saved"),
                 "--ledger_audit=" + Path("chaos.audit")})),
        "chaos", dir());
    LineFollower log(job_->process().err_path());
    while (const auto line = log.Next()) {
      if (line->find("listens on ") == std::string::npos) continue;
      port_ = line->substr(line->rfind(':') + 1);
      return;
    }
    FAIL() << job_->Output();
  }
  Flags Common() const {
    return {absl::StrCat("--master_addr=", Network::Address(kMasterHost), ":",
                         port_),
            "--token_file=" + Path("state/elasticdl/jobs/chaos/token")};
  }
  void StartServer(int id) {
    Flags argv = {Program("elasticdl-ps"), absl::StrCat("--ps_id=", id),
                  "--port=0", "--ps_log=" + Path("ps")};
    const Flags common = Common();
    argv.insert(argv.end(), common.begin(), common.end());
    others_.push_back(
        Run(absl::StrCat("ps-", id), network_->OnHost(HostOfServer(id), argv)));
  }
  void StartWorker(int id) {
    Flags argv = {Program("elasticdl-worker"), absl::StrCat("--worker_id=", id),
                  "--num_threads=1"};
    const Flags common = Common();
    argv.insert(argv.end(), common.begin(), common.end());
    others_.push_back(Run(absl::StrCat("worker-", id),
                          network_->OnHost(HostOfWorker(id), argv)));
  }

  void Cut(int a, int b, bool cut) {
    Network::Path path;
    path.cut = cut;
    network_->Set(a, b, path);
    network_->Set(b, a, path);
  }
  // Nothing passes between the two for so long. Events go on meanwhile.
  void CutFor(int a, int b, absl::Duration time) {
    Cut(a, b, true);
    const absl::Time end = absl::Now() + time;
    while (job_->NextEvent(end - absl::Now()).has_value()) {
    }
    Cut(a, b, false);
  }
  std::string Everything() {
    std::string text = job_->Output();
    for (const auto& other : others_) {
      absl::StrAppend(&text, "another:\n", other->err());
    }
    return text;
  }
  bool WaitForSteps(int64_t steps) {
    LineFollower audit(job_->audit());
    for (auto line = audit.Next(); line.has_value(); line = audit.Next()) {
      if (Json::parse(*line).value("step", int64_t{0}) >= steps) return true;
    }
    return false;
  }
  void FinishTally() {
    Go();
    ASSERT_EQ(job_->Wait(), 0) << Everything();
    EXPECT_TRUE(ChaosLedgerIsExact(*job_, kEpochs)) << Everything();
    std::map<std::string, double> metrics =
        job_->Events("evaluation").back().at("metrics");
    EXPECT_EQ(metrics["least"], -kRecords / 8 * kEpochs) << Everything();
    EXPECT_EQ(metrics["most"], -kRecords / 8 * kEpochs);
    EXPECT_EQ(metrics["row"], -kEpochs);
    EXPECT_EQ(metrics["row_squared"], kEpochs * kEpochs);
    EXPECT_THAT(CutBacks(*job_), testing::IsEmpty());
    TallyReplay replay(/*async=*/job_->Has("--use_async"));
    replay.Train(job_->audit());
    EXPECT_EQ(replay.Compare(job_->Flag("--checkpoint_dir")), "")
        << Everything();
  }

  std::unique_ptr<Network> network_;
  std::unique_ptr<Job> job_;
  std::string port_;
  std::vector<std::unique_ptr<ChildProcess>> others_;
};

// In both modes a version is one minibatch.
INSTANTIATE_TEST_SUITE_P(Modes, PsNetworkTest,
                         testing::Values("--use_async", "--grads_to_wait=1"),
                         [](const auto& info) {
                           return info.index == 0 ? "Async" : "Sync";
                         });

TEST_P(PsNetworkTest, AWorkerIsCutOffFromAServer) {
  ASSERT_TRUE(WaitForSteps(30)) << Everything();
  CutFor(HostOfWorker(0), HostOfServer(1), kShortCut);
  ASSERT_TRUE(WaitForSteps(120)) << Everything();
  CutFor(HostOfWorker(1), HostOfServer(0), kLongCut);
  FinishTally();
  EXPECT_THAT(job_->Events("worker_lost"), testing::IsEmpty()) << Everything();
}

TEST_P(PsNetworkTest, AServerIsCutOffFromTheMaster) {
  ASSERT_TRUE(WaitForSteps(30)) << Everything();
  CutFor(kMasterHost, HostOfServer(0), kShortCut);
  ASSERT_TRUE(WaitForSteps(120)) << Everything();
  CutFor(kMasterHost, HostOfServer(1), kLongCut);
  FinishTally();
}

TEST_P(PsNetworkTest, AServerIsCutOffFromAll) {
  ASSERT_TRUE(WaitForSteps(30)) << Everything();
  network_->CutFrom(HostOfServer(0));
  network_->CutTo(HostOfServer(0));
  const absl::Time end = absl::Now() + kLongCut;
  while (job_->NextEvent(end - absl::Now()).has_value()) {
  }
  network_->SetAll({});
  FinishTally();
}

TEST_P(PsNetworkTest, PacketsAreLost) {
  ASSERT_TRUE(WaitForSteps(10)) << Everything();
  Network::Path bad;
  bad.loss = 0.02;
  network_->SetAll(bad);
  ASSERT_TRUE(WaitForSteps(60)) << Everything();
  network_->SetAll({});
  FinishTally();
}

}  // namespace
}  // namespace elasticdl::test
