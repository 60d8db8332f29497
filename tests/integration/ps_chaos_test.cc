// Training with parameter servers while processes are killed.
#include "integration/ps_chaos.h"

#include <signal.h>

#include <cctype>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "gmock/gmock.h"

namespace elasticdl::test {
namespace {

using ::testing::IsEmpty;

class PsModeTest : public PsChaosTest,
                   public testing::WithParamInterface<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, PsModeTest, testing::Values(kAsync, kSync),
                         [](const auto& info) { return info.param.name; });

TEST_P(PsModeTest, NothingHappens) {
  const auto job = StartPs("calm", 2, 2, GetParam().flags);
  Finish(*job);
}

TEST_P(PsModeTest, ServersAreKilled) {
  const auto job = StartPs("servers", 2, 2, GetParam().flags);
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  Kill(*job, "ps", 0);
  ASSERT_TRUE(WaitForSteps(*job, 60));
  Kill(*job, "ps", 1);
  Kill(*job, "ps", 0);
  ASSERT_TRUE(WaitForSteps(*job, 100));
  Finish(*job);
}

TEST_P(PsModeTest, WorkersAreKilled) {
  const auto job = StartPs("workers", 2, 3, GetParam().flags);
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  Kill(*job, "worker", 0);
  ASSERT_TRUE(WaitForSteps(*job, 40));
  Kill(*job, "worker", 1);
  Kill(*job, "worker", 2);
  ASSERT_TRUE(WaitForSteps(*job, 60));
  Finish(*job);
}

TEST_P(PsModeTest, AllAreKilledAtOnce) {
  const auto job = StartPs("all", 2, 2, GetParam().flags);
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  Kill(*job, "worker", 0);
  Kill(*job, "ps", 1);
  Kill(*job, "worker", 1);
  Kill(*job, "ps", 0);
  ASSERT_TRUE(WaitForSteps(*job, 60));
  Finish(*job);
}

TEST_P(PsModeTest, AServerStopsForAWhile) {
  const auto job = StartPs("stopped", 2, 2, GetParam().flags);
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  Kill(*job, "ps", 0, SIGSTOP);
  // The other one is replaced meanwhile.
  Kill(*job, "ps", 1);
  ASSERT_TRUE(job->WaitUntil("the other's successor", [](const auto& events) {
    int started = 0;
    for (const Json& event : events) {
      started += event.at("event") == "pod_started" &&
                 event.at("type") == "ps" && event.at("id") == 1;
    }
    return started == 2;
  }));
  Kill(*job, "ps", 0, SIGCONT);
  Finish(*job);
}

TEST_F(PsChaosTest, AServerThatHangsIsReplaced) {
  const auto job =
      StartPs("hangs", 2, 2, {"--use_async", "--worker_timeout=2"});
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  const pid_t pid = PidOf(*job, "ps", 0);
  Kill(*job, "ps", 0, SIGSTOP);
  ASSERT_TRUE(job->WaitUntil("its successor", [&](const auto& events) {
    for (const Json& event : events) {
      if (event.at("event") == "pod_started" && event.at("type") == "ps" &&
          event.at("id") == 0 && event.at("pid") != pid) {
        return true;
      }
    }
    return false;
  }));
  Finish(*job);
}

// Most times before it attaches: nobody has heard of it then.
TEST_F(PsChaosTest, AServerThatHangsAtItsStartIsReplaced) {
  const auto job = StartPs(
      "hangs-early", 2, 2,
      {"--use_async", "--worker_timeout=2", "--worker_start_timeout=8"});
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  const auto started = [](const auto& events) {
    int count = 0;
    for (const Json& event : events) {
      count += event.at("event") == "pod_started" && event.at("type") == "ps" &&
               event.at("id") == 0;
    }
    return count;
  };
  Kill(*job, "ps", 0);
  ASSERT_TRUE(job->WaitUntil(
      "its successor", [&](auto& events) { return started(events) == 2; }));
  Kill(*job, "ps", 0, SIGSTOP);
  ASSERT_TRUE(job->WaitUntil(
      "the next one", [&](auto& events) { return started(events) == 3; }));
  Finish(*job);
}

TEST_P(PsModeTest, WorkersComeAndGo) {
  const auto job = StartPs("scaled", 2, 1, GetParam().flags);
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 10));
  Scale(*job, 3);
  ASSERT_TRUE(WaitForReady(*job, 2));
  ASSERT_TRUE(WaitForSteps(*job, 60));
  Scale(*job, 1);
  ASSERT_TRUE(WaitForSteps(*job, 100));
  Finish(*job);
}

std::string NameOf(std::string text) {
  for (char& c : text) {
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return text;
}

// A worker dies at a failpoint, in both modes.
class PsKillAtTest
    : public PsChaosTest,
      public testing::WithParamInterface<std::tuple<Mode, const char*>> {};
INSTANTIATE_TEST_SUITE_P(
    Points, PsKillAtTest,
    testing::Combine(testing::Values(kAsync, kSync),
                     testing::Values("worker.pull", "worker.push",
                                     "ps.between_servers", "worker.pushed")),
    [](const auto& info) {
      return absl::StrCat(std::get<0>(info.param).name, "_",
                          NameOf(std::get<1>(info.param)));
    });

TEST_P(PsKillAtTest, TheOtherGoesOn) {
  const auto& [mode, point] = GetParam();
  Flags flags = mode.flags;
  flags.push_back(absl::StrCat("--failpoints=0:", point, "=kill@15"));
  const auto job = StartPs("point", 3, 2, flags);
  Walk();
  const Json lost = job->WaitForEvent("worker_lost");
  EXPECT_EQ(lost.value("worker_id", -1), 0);
  Finish(*job);
}

TEST_F(PsChaosTest, VersionsOfSeveralGradients) {
  const auto job = StartPs("mean", 2, 3,
                           // Positions in the audit are records.
                           {"--grads_to_wait=3", "--shuffle=false"});
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 10));
  Kill(*job, "worker", 1);
  Kill(*job, "ps", 0);
  ASSERT_TRUE(WaitForSteps(*job, 30));
  Go();
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_TRUE(IsExact(*job)) << job->Output();
  // Each version is the mean of its gradients, which are all the same.
  const int64_t versions = job->End().at("step");
  EXPECT_GE(versions, kMinibatches / 3);
  std::map<std::string, double> metrics = LastMetrics(*job);
  EXPECT_EQ(metrics["least"], -versions);
  EXPECT_EQ(metrics["most"], -versions);
  EXPECT_TRUE(TablesAreThoseOfTheAudit(*job)) << job->Output();
}

// The original's worker ended with an exception in this mode.
TEST_F(PsChaosTest, LocalUpdatesBetweenPulls) {
  const auto job =
      StartPs("local", 2, 2, {"--use_async", "--get_model_steps=4"});
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 30));
  Kill(*job, "ps", 0);
  Kill(*job, "worker", 0);
  ASSERT_TRUE(WaitForSteps(*job, 60));
  Finish(*job);
}

// From 1 server to 2, and from 3 to 1: the first checkpoint of an epoch, with
// all that came before.
TEST_P(PsModeTest, ACheckpointGoesOnOnMoreOrFewerServers) {
  Go();
  for (const auto& [from, to] : {std::pair(1, 2), std::pair(3, 1)}) {
    const std::string name = absl::StrCat(from, "-to-", to);
    Flags flags = GetParam().flags;
    flags.push_back("--checkpoint_steps=40");
    flags.push_back("--checkpoint_dir=" + Path(name));
    Flags first = flags;
    first.push_back("--num_epochs=2");
    const auto job = StartPs("first-" + name, from, 2, first);
    CheckTally(*job, kMinibatches / kEpochs * 2, 2);
    const std::vector<int64_t> versions = Versions(Path(name));
    ASSERT_GE(versions.size(), 2u);
    flags.push_back(absl::StrCat("--checkpoint_dir_for_init=", Path(name),
                                 "/version-", versions.front()));
    flags.push_back("--checkpoint_dir=" + Path("next-" + name));
    const auto next = StartPs("next-" + name, to, 2, flags);
    CheckContinued(*next, *job, versions.front());
  }
}

TEST_P(PsModeTest, ACheckpointGoesOnOnAnotherNumberOfServers) {
  const std::string checkpoints = Path("checkpoints");
  Flags flags = GetParam().flags;
  flags.push_back("--checkpoint_steps=40");
  flags.push_back("--checkpoint_dir=" + checkpoints);
  Flags first = flags;
  first.push_back("--num_epochs=2");
  const auto job = StartPs("first", 2, 2, first);
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 50));
  Kill(*job, "worker", 0);
  Kill(*job, "ps", 1);
  Go();
  CheckTally(*job, kMinibatches / kEpochs * 2, 2);
  const std::vector<int64_t> versions = Versions(checkpoints);
  // The original's servers kept none with --keep_checkpoint_max=0, the default.
  ASSERT_GE(versions.size(), 2u);
  EXPECT_EQ(versions.back(), kMinibatches / kEpochs * 2);

  // From the last one, and from one in the middle of an epoch.
  for (const int64_t version : {versions.back(), versions.front()}) {
    Flags again = flags;
    again.push_back(absl::StrCat("--checkpoint_dir_for_init=", checkpoints,
                                 "/version-", version));
    again.push_back("--checkpoint_dir=" + Path(absl::StrCat("to-", version)));
    const auto next = StartPs(absl::StrCat("from-", version), 3, 2, again);
    CheckContinued(*next, *job, version);
  }

  // A job without servers reads it, too.
  const auto evaluated =
      Evaluate("evaluated", {"--model_def=tally.custom_model",
                             "--validation_data=" + chaos_csv(),
                             "--checkpoint_dir_for_init=" + checkpoints});
  ASSERT_EQ(evaluated->Wait(), 0) << evaluated->Output();
  std::map<std::string, double> metrics = LastMetrics(*evaluated);
  EXPECT_EQ(metrics["least"], -kMinibatches / kEpochs * 2);
  EXPECT_EQ(metrics["row"], -2);
  EXPECT_EQ(metrics["row_squared"], 4);
}

}  // namespace
}  // namespace elasticdl::test
