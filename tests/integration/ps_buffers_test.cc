// Buffers of a model on parameter servers are shared: whoever evaluates, saves
// or joins has the same ones. The model tells them (zoo/norm.cc).
#include <signal.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"

namespace elasticdl::test {
namespace {

class PsBuffersTest : public ChaosTest {
 protected:
  static constexpr int64_t kMinibatches = kRecords / 8 * kEpochs;

  std::unique_ptr<Job> StartPs(const std::string& name, const Flags& more) {
    Flags flags = {"--distribution_strategy=ParameterServerStrategy",
                   "--model_def=norm.custom_model",
                   "--training_data=" + chaos_csv(),
                   "--validation_data=" + chaos_csv(),
                   "--num_ps_pods=2",
                   "--num_workers=2",
                   absl::StrCat("--num_epochs=", kEpochs),
                   "--minibatch_size=8",
                   "--checkpoint_dir=" + checkpoints(),
                   "--model_params=pace=" + pace()};
    flags.insert(flags.end(), more.begin(), more.end());
    return Train(name, flags);
  }
  // Of the last evaluation; every minibatch of it must have told the same.
  static std::map<std::string, double> Told(Job& job) {
    const std::vector<Json> evaluations = job.Events("evaluation");
    EXPECT_FALSE(evaluations.empty()) << job.Output();
    if (evaluations.empty()) return {};
    std::map<std::string, double> told = evaluations.back().at("metrics");
    EXPECT_NEAR(told["mean_squared"], told["mean"] * told["mean"], 1e-9);
    EXPECT_EQ(told["minibatches_squared"],
              told["minibatches"] * told["minibatches"]);
    return told;
  }
  std::map<std::string, double> Saved() {
    const auto evaluated =
        Evaluate("evaluated", {"--model_def=norm.custom_model",
                               "--validation_data=" + chaos_csv(),
                               "--checkpoint_dir_for_init=" + checkpoints()});
    EXPECT_EQ(evaluated->Wait(), 0) << evaluated->Output();
    return Told(*evaluated);
  }
  // Metrics are sums over workers, in the order in which they come.
  static void ExpectSame(const std::map<std::string, double>& saved,
                         const std::map<std::string, double>& told) {
    ASSERT_EQ(saved.size(), told.size());
    for (const auto& [name, value] : told) {
      ASSERT_EQ(saved.count(name), 1u) << name;
      EXPECT_NEAR(saved.at(name), value, 1e-9 * std::max(1.0, value)) << name;
    }
  }
  static bool WaitForStep(Job& job) {
    return job.WaitUntil("a step", [](const std::vector<Json>& events) {
      return std::any_of(events.begin(), events.end(), [](const Json& event) {
        return event.at("event") == "first_step";
      });
    });
  }
  std::string checkpoints() const { return Path("checkpoints"); }
};

// A version is one minibatch, each computed with the statistics of the one
// before, whoever computed that.
TEST_F(PsBuffersTest, StatisticsAreThoseOfAllMinibatches) {
  const auto job = StartPs("norm", {"--grads_to_wait=1"});
  Walk();
  const pid_t worker = job->WaitForWorker(0);
  // The other worker may make it before this one is ready.
  ASSERT_TRUE(WaitForStep(*job));
  // Its successor goes on with what the servers have.
  ASSERT_EQ(kill(worker, SIGKILL), 0);
  Go();
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  std::map<std::string, double> told = Told(*job);
  EXPECT_EQ(told["minibatches"], kMinibatches);
  ExpectSame(Saved(), told);
}

TEST_F(PsBuffersTest, AllHaveTheSameInAnAsynchronousJob) {
  const auto job = StartPs("norm", {"--use_async"});
  Go();
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  std::map<std::string, double> told = Told(*job);
  // What two workers do at the same time counts once, and with overlap so does
  // what one of them does in a row: a quarter, more or less.
  EXPECT_GE(told["minibatches"], kMinibatches / 8);
  EXPECT_LE(told["minibatches"], kMinibatches);
  ExpectSame(Saved(), told);

  // They go on from there, with another number of servers.
  const auto next =
      StartPs("next", {"--grads_to_wait=1", "--num_ps_pods=1",
                       "--checkpoint_dir_for_init=" + checkpoints(),
                       absl::StrCat("--num_epochs=", kEpochs + 1)});
  ASSERT_EQ(next->Wait(), 0) << next->Output();
  EXPECT_EQ(Told(*next)["minibatches"],
            told["minibatches"] + kMinibatches / kEpochs);
}

}  // namespace
}  // namespace elasticdl::test
