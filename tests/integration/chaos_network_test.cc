// Workers on several hosts whose network goes silent, works one way only, is
// slow or loses packets.
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"
#include "integration/network.h"

namespace elasticdl::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

// The master is on host 1; worker i is on host i + 2.
class ChaosNetworkTest : public ChaosTest {
 protected:
  void SetUp() override {
    ChaosTest::SetUp();
    constexpr uint32_t kSeed = 77;
    auto network = Network::Create(4, dir(), kSeed);
    if (!network.ok()) {
      GTEST_SKIP() << "no hosts here: " << network.status().message();
    }
    network_ = *std::move(network);
  }

  void TearDown() override {
    // They end with their job, or are killed.
    for (const auto& worker : workers_) worker->Wait();
    workers_.clear();
    ChaosTest::TearDown();
  }

  std::unique_ptr<Job> StartMaster(const Flags& more = {}) {
    std::vector<std::string> argv = {
        Program("elasticdl-master"),
        "--job_name=chaos",
        "--pod_backend=none",
        "--distribution_strategy=AllreduceStrategy",
        "--model_zoo=" + Zoo(),
        "--model_def=linear.custom_model",
        "--model_params=pace=" + pace(),
        "--training_data=" + chaos_csv(),
        "--minibatch_size=8",
        "--num_minibatches_per_task=2",
        absl::StrCat("--num_epochs=", kEpochs),
        "--num_threads=1",
        "--worker_timeout=3",
        "--port=0",
        "--event_log=" + Path("chaos.events"),
        "--ledger_audit=" + Path("chaos.audit")};
    argv.insert(argv.end(), more.begin(), more.end());
    auto job = std::make_unique<Job>(
        MakeOptions("chaos", network_->OnHost(1, argv)), "chaos", dir());
    LineFollower log(job->process().err_path());
    while (const auto line = log.Next()) {
      if (line->find("listens on ") == std::string::npos) continue;
      port_ = line->substr(line->rfind(':') + 1);
      break;
    }
    return job;
  }

  // `more`: flags, which win over the others.
  std::unique_ptr<ChildProcess> StartWorker(int64_t id, int host,
                                            const Flags& more = {},
                                            const Flags& environment = {}) {
    std::vector<std::string> argv = {"/usr/bin/env"};
    argv.insert(argv.end(), environment.begin(), environment.end());
    const Flags command = WorkerCommand(id);
    argv.insert(argv.end(), command.begin(), command.end());
    argv.insert(argv.end(), more.begin(), more.end());
    return Run(absl::StrCat("worker-", id), network_->OnHost(host, argv));
  }
  Flags WorkerCommand(int64_t id) const {
    return {Program("elasticdl-worker"), absl::StrCat("--worker_id=", id),
            absl::StrCat("--master_addr=", Network::Address(1), ":", port_),
            "--token_file=" + Path("state/elasticdl/jobs/chaos/token"),
            "--num_threads=1"};
  }
  // As in a pod of a cluster: with process ids of its own, the worker's is 1.
  std::unique_ptr<ChildProcess> StartPod(int64_t id, int host) {
    std::vector<std::string> argv = {"/usr/bin/unshare", "--pid", "--fork",
                                     "--kill-child", "--mount-proc"};
    const Flags command = WorkerCommand(id);
    argv.insert(argv.end(), command.begin(), command.end());
    return Run(absl::StrCat("worker-", id), network_->OnHost(host, argv));
  }
  static pid_t WorkerPid(const ChildProcess& pod) {
    return OnlyChild(pod.pid());
  }
  static pid_t OnlyChild(pid_t parent) {
    const auto children =
        ReadFile(absl::StrCat("/proc/", parent, "/task/", parent, "/children"));
    pid_t child = 0;
    EXPECT_TRUE(children.ok() &&
                absl::SimpleAtoi(absl::StripAsciiWhitespace(*children), &child))
        << "children of process " << parent << ": "
        << children.value_or("unknown");
    return child;
  }
  void StartWorkers() {
    for (int i = 0; i < 3; ++i) workers_.push_back(StartWorker(i, i + 2));
  }
  std::string Logs() {
    std::string logs;
    for (const auto& worker : workers_) {
      absl::StrAppend(&logs, "worker:\n", worker->err());
    }
    return logs;
  }
  // The end of a job; the ledger must be exact.
  void FinishHosts(Job& job) {
    Go();
    EXPECT_EQ(job.Wait(), 0) << job.Output() << Logs();
    PrintPauses(job);
    EXPECT_TRUE(ChaosLedgerIsExact(job, kEpochs));
    EXPECT_THAT(CutBacks(job), IsEmpty());
  }

  std::unique_ptr<Network> network_;
  std::vector<std::unique_ptr<ChildProcess>> workers_;
  std::string port_;
};

TEST_F(ChaosNetworkTest, AllIsWell) {
  const auto job = StartMaster();
  StartWorkers();
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2})) << Logs();
  FinishHosts(*job);
  for (const auto& worker : workers_) EXPECT_EQ(worker->Wait(), 0);
}

// Workers have process ids of their own, as in a cluster: nobody but its
// sentinel can watch the life sign of a worker.
TEST_F(ChaosNetworkTest, PodsWithSentinels) {
  const auto job = StartMaster();
  for (int i = 0; i < 3; ++i) workers_.push_back(StartPod(i, i + 2));
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2})) << Logs();
  const pid_t killed = WorkerPid(*workers_[1]);
  ASSERT_GT(killed, 1);
  ASSERT_GT(OnlyChild(killed), 1) << "it has a sentinel";
  kill(killed, SIGKILL);
  ASSERT_TRUE(WaitForWorld(*job, {0, 2})) << Logs();
  EXPECT_NE(workers_[1]->Wait(), 0);
  workers_.push_back(StartPod(3, 3));
  ASSERT_TRUE(WaitForWorld(*job, {0, 2, 3})) << Logs();
  // Without a sentinel all goes on.
  kill(OnlyChild(WorkerPid(*workers_[2])), SIGKILL);
  kill(WorkerPid(*workers_[0]), SIGTERM);
  ASSERT_TRUE(WaitForWorld(*job, {2, 3})) << Logs();
  EXPECT_EQ(workers_[0]->Wait(), 0);
  FinishHosts(*job);
  EXPECT_EQ(workers_[2]->Wait(), 0);
  EXPECT_EQ(workers_[3]->Wait(), 0);
}

// Which address a worker offers to those on other hosts: that of a flag, of a
// variable, or by default not the one that it calls its master by.
TEST_F(ChaosNetworkTest, AddressesThatWorkersOffer) {
  const auto job = StartMaster();
  workers_.push_back(StartWorker(
      0, 1, {"--master_addr=localhost:" + port_, "--log_level=DEBUG"}));
  workers_.push_back(StartWorker(
      1, 2,
      {"--worker_address=" + Network::OtherAddress(2), "--log_level=DEBUG"}));
  workers_.push_back(
      StartWorker(2, 3, {"--log_level=DEBUG"},
                  {"ELASTICDL_WORKER_ADDRESS=" + Network::OtherAddress(3)}));
  workers_.push_back(StartWorker(3, 4, {"--log_level=DEBUG"}));
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2, 3})) << Logs();
  FinishHosts(*job);
  const std::string words = "others reach this member at ";
  const std::vector<std::string> addresses = {
      Network::Address(1), Network::OtherAddress(2), Network::OtherAddress(3),
      Network::Address(4)};
  for (size_t i = 0; i < workers_.size(); ++i) {
    EXPECT_EQ(workers_[i]->Wait(), 0);
    EXPECT_THAT(workers_[i]->err(), HasSubstr(words + addresses[i] + "\n"));
  }
}

// A worker that cannot be reached is told so, and the others go on.
TEST_F(ChaosNetworkTest, AddressOfAnotherHost) {
  const auto job = StartMaster();
  StartWorkers();
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2})) << Logs();
  workers_.push_back(
      StartWorker(3, 4, {"--worker_address=" + Network::Address(9)}));
  job->WaitForEvent("worker_lost",
                    [](const Json& event) { return event["worker_id"] == 3; });
  FinishHosts(*job);
  EXPECT_THAT(workers_[3]->err(), HasSubstr("listen on 10.77.0.9: "));
}

TEST_F(ChaosNetworkTest, SilentHost) {
  const auto job = StartMaster();
  StartWorkers();
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2})) << Logs();
  network_->CutFrom(3);
  network_->CutTo(3);
  ASSERT_TRUE(WaitForWorld(*job, {0, 2})) << Logs();
  // It has lost its master, too.
  EXPECT_THAT(workers_[1]->Wait(), Optional(3)) << workers_[1]->err();
  // The host is back, with a new worker.
  network_->SetAll({});
  workers_.push_back(StartWorker(3, 3));
  ASSERT_TRUE(WaitForWorld(*job, {0, 2, 3})) << Logs();
  FinishHosts(*job);
}

TEST_F(ChaosNetworkTest, HostThatOnlyHears) {
  const auto job = StartMaster();
  StartWorkers();
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2})) << Logs();
  network_->CutFrom(3);
  ASSERT_TRUE(WaitForWorld(*job, {0, 2})) << Logs();
  FinishHosts(*job);
  EXPECT_THAT(workers_[1]->Wait(), Optional(3)) << workers_[1]->err();
}

TEST_F(ChaosNetworkTest, HostThatOnlySpeaks) {
  const auto job = StartMaster();
  StartWorkers();
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2})) << Logs();
  network_->CutTo(3);
  ASSERT_TRUE(WaitForWorld(*job, {0, 2})) << Logs();
  FinishHosts(*job);
  EXPECT_THAT(workers_[1]->Wait(), Optional(3)) << workers_[1]->err();
}

TEST_F(ChaosNetworkTest, Delay) {
  const auto job =
      StartMaster({"--max_step=15", "--num_workers=3", "--min_workers=3"});
  StartWorkers();
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2})) << Logs();
  Network::Path slow;
  slow.delay = absl::Milliseconds(200);
  network_->SetAll(slow);
  Go();
  EXPECT_EQ(job->Wait(), 0) << job->Output() << Logs();
  EXPECT_TRUE(ChaosLedgerIsExact(*job, kEpochs, {"--partial"}));
  EXPECT_THAT(job->Events("worker_lost"), IsEmpty());
}

TEST_F(ChaosNetworkTest, Loss) {
  const auto job =
      StartMaster({"--max_step=60", "--num_workers=3", "--min_workers=3"});
  StartWorkers();
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2})) << Logs();
  Network::Path bad;
  bad.loss = 0.05;
  network_->SetAll(bad);
  Go();
  EXPECT_EQ(job->Wait(), 0) << job->Output() << Logs();
  EXPECT_TRUE(ChaosLedgerIsExact(*job, kEpochs, {"--partial"}));
}

// The master hears both, but one does not hear the other any more.
TEST_F(ChaosNetworkTest, CutBetweenTwoWorkers) {
  const auto job = StartMaster();
  StartWorkers();
  ASSERT_TRUE(WaitForWorld(*job, {0, 1, 2})) << Logs();
  Network::Path cut;
  cut.cut = true;
  network_->Set(3, 4, cut);
  network_->Set(4, 3, cut);
  ASSERT_TRUE(WaitForSize(*job, 2)) << Logs();
  FinishHosts(*job);
}

}  // namespace
}  // namespace elasticdl::test
