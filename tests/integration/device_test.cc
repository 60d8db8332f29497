// Jobs on a device, which is the test device (tests/gpu/device) where it is
// preloaded: what they leave behind is the CPU's.
#include <cstdlib>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class DeviceTest : public JobTest {
 protected:
  void SetUp() override {
    const TestGpus gpus = Gpus();
    if (gpus.count == 0) GTEST_SKIP() << "no GPU: " << gpus.why_none;
  }
  // The metrics of its evaluations by step.
  std::map<int, Json> TrainOn(const std::string& device,
                              const std::string& name, const Flags& more) {
    Flags flags = {"--device=" + device, "--validation_data=" + test_csv(),
                   "--evaluation_steps=20"};
    flags.insert(flags.end(), more.begin(), more.end());
    const auto job = Train(name, flags);
    EXPECT_EQ(job->Wait(), 0) << job->Output();
    if (device != "cpu") {
      EXPECT_THAT(job->Log("0"), HasSubstr("computing on cuda:0"));
    }
    std::map<int, Json> metrics;
    for (const Json& event : job->Events("evaluation")) {
      metrics[event.at("step")] = event.at("metrics");
    }
    return metrics;
  }
  static void ExpectClose(const Json& a, const Json& b) {
    for (const char* name : {"mse", "mae"}) {
      const double value = a.at(name);
      EXPECT_NEAR(b.at(name), value, 1e-5 * value) << name;
    }
  }
};

TEST_F(DeviceTest, ACheckpointMovesBetweenCpuAndDevice) {
  const auto saved = [this](const std::string& name) -> Flags {
    return {"--checkpoint_dir=" + Path(name), "--checkpoint_steps=20"};
  };
  const auto from = [this](const std::string& name) {
    return "--checkpoint_dir_for_init=" + Path(name);
  };
  // Two epochs on the CPU; and one there, one on the device.
  const auto cpu = TrainOn("cpu", "cpu", {"--num_epochs=2"});
  ASSERT_THAT(cpu, SizeIs(2));
  const auto first = TrainOn("cuda:0", "first", saved("first"));
  ASSERT_THAT(first, SizeIs(1));
  ExpectClose(first.at(20), cpu.at(20));
  const auto back = TrainOn("cpu", "back", {from("first"), "--num_epochs=2"});
  ExpectClose(back.at(40), cpu.at(40));
  TrainOn("cpu", "second", saved("second"));
  const auto there =
      TrainOn("cuda:0", "there", {from("second"), "--num_epochs=2"});
  ExpectClose(there.at(40), cpu.at(40));
  // An evaluation alone, of the device's checkpoint on both.
  for (const char* device : {"cpu", "cuda:0"}) {
    const auto job = Evaluate(
        absl::StrCat("evaluate-", device == std::string("cpu") ? 0 : 1),
        {from("first"), absl::StrCat("--device=", device)});
    ASSERT_EQ(job->Wait(), 0) << job->Output();
    ExpectClose(job->Events("evaluation").at(0).at("metrics"), cpu.at(20));
  }
}

// One of two workers has the fault, and whoever replaces it does not. In the
// middle of training, because a worker makes some hundred calls in a step.
class FaultTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    if (Gpus().real) GTEST_SKIP() << "only the test device can be broken";
  }
  std::unique_ptr<Job> TrainWith(const std::string& fault, const Flags& more) {
    setenv("TEST_CUDART_FAULT", fault.c_str(), /*overwrite=*/1);
    setenv("TEST_CUDART_FAULT_ONCE", Path("once").c_str(), /*overwrite=*/1);
    Flags flags = {"--device=cuda", "--num_workers=2",
                   "--distribution_strategy=AllreduceStrategy",
                   "--num_epochs=8", "--ledger_audit=" + Path("audit")};
    flags.insert(flags.end(), more.begin(), more.end());
    auto job = Train("fault", flags);
    unsetenv("TEST_CUDART_FAULT");
    unsetenv("TEST_CUDART_FAULT_ONCE");
    return job;
  }
  static std::string AllLogs(Job& job) {
    std::string logs;
    for (const int64_t worker : job.WorkersWithLogs()) {
      logs += job.Log(absl::StrCat(worker));
    }
    return logs;
  }
};

TEST_F(FaultTest, ADeviceThatFailsEndsOnlyItsWorker) {
  const auto job = TrainWith("break@2000", {});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(AllLogs(*job), HasSubstr("the device failed: "));
  EXPECT_THAT(AllLogs(*job), HasSubstr("illegal memory access"));
  // Two, and the one that replaced one of them.
  EXPECT_THAT(job->WorkersWithLogs(), SizeIs(3));
}

TEST_F(FaultTest, AKernelThatHangsEndsOnlyItsWorker) {
  const auto job = TrainWith("hang@2000", {"--step_timeout=2"});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(AllLogs(*job), HasSubstr("stuck in "));
  EXPECT_THAT(job->WorkersWithLogs(), SizeIs(3));
}

TEST_F(DeviceTest, ADeviceThatIsNotThereIsTold) {
  const auto job =
      Train("nowhere", {"--device=cuda:99", "--relaunch_on_worker_failure=0"});
  EXPECT_NE(job->Wait(), 0);
  EXPECT_THAT(job->Log("0"), HasSubstr("--device=cuda:99: there "));
}

}  // namespace
}  // namespace elasticdl::test
