// Jobs with parameter servers to which terrible things happen: every record is
// in the model exactly once, on every server. The model counts (zoo/tally.cc):
// its values tell what each server has applied.
#pragma once

#include <signal.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "elasticdl/common/file.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"
#include "integration/tally_replay.h"

namespace elasticdl::test {

class PsChaosTest : public ChaosTest {
 protected:
  static constexpr int64_t kMinibatches = kRecords / 8 * kEpochs;

  std::unique_ptr<Job> StartPs(const std::string& name, int64_t servers,
                               int64_t workers, const Flags& more) {
    Flags flags = {"--distribution_strategy=ParameterServerStrategy",
                   "--model_def=tally.custom_model",
                   "--training_data=" + chaos_csv(),
                   "--validation_data=" + chaos_csv(),
                   absl::StrCat("--num_ps_pods=", servers),
                   absl::StrCat("--num_workers=", workers),
                   absl::StrCat("--num_epochs=", kEpochs),
                   "--minibatch_size=8",
                   "--relaunch_on_worker_failure=50",
                   "--model_params=pace=" + pace()};
    flags.push_back("--ps_audit=" + Path(name + "-applied"));
    // What the servers have at the end.
    flags.push_back("--checkpoint_dir=" + Path(name + "-saved"));
    flags.insert(flags.end(), more.begin(), more.end());
    return Train(name, flags);
  }
  // The servers' tables are those of a replay of the audit in one process;
  // `before`: of the job that this one continues, up to its first step.
  static testing::AssertionResult TablesAreThoseOfTheAudit(
      const Job& job, const Job* before = nullptr, int64_t first_step = 0) {
    TallyReplay replay(/*async=*/job.Has("--use_async"));
    if (before != nullptr) replay.Train(before->audit(), first_step);
    replay.Train(job.audit());
    const std::string differences =
        replay.Compare(job.Flag("--checkpoint_dir"));
    if (differences.empty()) return testing::AssertionSuccess();
    return testing::AssertionFailure() << differences;
  }
  // Waits for so many commits.
  static bool WaitForSteps(Job& job, int64_t steps) {
    LineFollower audit(job.audit());
    for (auto line = audit.Next(); line.has_value(); line = audit.Next()) {
      if (Json::parse(*line).value("step", int64_t{0}) >= steps) return true;
    }
    ADD_FAILURE() << "step " << steps << " does not come; " << job.Output();
    return false;
  }
  // The newest process of a pod; 0 when there was none.
  static pid_t PidOf(Job& job, const std::string& type, int64_t id) {
    pid_t pid = 0;
    for (const Json& event : job.Events("pod_started")) {
      if (event.at("type") == type && event.at("id") == id) {
        pid = event.at("pid");
      }
    }
    return pid;
  }
  static void Kill(Job& job, const std::string& type, int64_t id,
                   int signal = SIGKILL) {
    // The newest may have been killed before, and its successor not be there.
    EXPECT_TRUE(job.WaitUntil("a process to kill", [&](const auto&) {
      const pid_t pid = PidOf(job, type, id);
      return pid > 0 && kill(pid, signal) == 0;
    }));
  }
  static std::map<std::string, double> LastMetrics(Job& job) {
    const std::vector<Json> evaluations = job.Events("evaluation");
    if (evaluations.empty()) return {};
    return evaluations.back().at("metrics");
  }
  // By the ledger and by every server's own audit, with both checkers.
  testing::AssertionResult IsExact(Job& job, int64_t epochs = kEpochs) {
    const std::string applied = Path(job.name() + "-applied");
    const Flags audits = PsAudits(applied);
    if (audits.empty()) return testing::AssertionFailure() << "no audits";
    const auto audit = Run(
        "audit", {Program("elasticdl"), "audit", job.audit(),
                  absl::StrCat("--records=", kRecords),
                  absl::StrCat("--epochs=", epochs), "--ps_audit=" + applied});
    if (audit->Wait() != 0) {
      return testing::AssertionFailure()
             << "elasticdl audit: " << audit->out() << audit->err();
    }
    return ChaosLedgerIsExact(job, epochs, audits);
  }
  // All of it is in the model once: `pushes` on every server, each record in
  // each epoch.
  void CheckTally(Job& job, int64_t pushes, int64_t epochs = kEpochs) {
    ASSERT_EQ(job.Wait(), 0) << job.Output();
    EXPECT_TRUE(IsExact(job, epochs)) << job.Output();
    std::map<std::string, double> metrics = LastMetrics(job);
    EXPECT_EQ(metrics["least"], -pushes) << job.Output();
    EXPECT_EQ(metrics["most"], -pushes);
    EXPECT_EQ(metrics["row"], -epochs);
    EXPECT_EQ(metrics["other_row"], -epochs);
    EXPECT_EQ(metrics["row_squared"], epochs * epochs);
    EXPECT_THAT(CutBacks(job), testing::IsEmpty());
    EXPECT_TRUE(TablesAreThoseOfTheAudit(job)) << job.Output();
  }
  // A job that went on from a checkpoint of `before`, to its end.
  void CheckContinued(Job& job, const Job& before, int64_t version) {
    ASSERT_EQ(job.Wait(), 0) << job.Output();
    std::map<std::string, double> metrics = LastMetrics(job);
    EXPECT_EQ(metrics["least"], -kMinibatches) << job.Output();
    EXPECT_EQ(metrics["most"], -kMinibatches);
    EXPECT_EQ(metrics["row"], -kEpochs);
    EXPECT_EQ(metrics["row_squared"], kEpochs * kEpochs);
    EXPECT_TRUE(TablesAreThoseOfTheAudit(job, &before, version))
        << job.Output();
  }
  void Finish(Job& job) {
    Go();
    CheckTally(job, kMinibatches);
  }
  // `elasticdl scale --num_ps_pods`, which must succeed.
  void ScaleServers(Job& job, int64_t servers) {
    const auto scale =
        Run("scale", {Program("elasticdl"), "scale", "--job_name=" + job.name(),
                      absl::StrCat("--num_ps_pods=", servers)});
    ASSERT_EQ(scale->Wait(), 0) << scale->err() << job.Output();
  }
  // So many moves have ended, the last with so many servers.
  static bool WaitForMove(Job& job, size_t moves, int64_t servers) {
    return job.WaitUntil("the end of a move", [&](const auto& events) {
      size_t ended = 0;
      int64_t last = 0;
      for (const Json& event : events) {
        if (event.at("event") != "ps_scaled") continue;
        ++ended;
        last = event.at("servers");
      }
      return ended >= moves && last == servers;
    });
  }
  // A server of `job`, which has two of them, dies at one point of the move to
  // three of them.
  void CheckMove(Job& job) {
    Stroll();
    ASSERT_TRUE(WaitForSteps(job, 5));
    ScaleServers(job, 3);
    ASSERT_TRUE(WaitForMove(job, 1, 3)) << job.Output();
    Finish(job);
    EXPECT_THAT(job.Events("pod_ended"), testing::Not(testing::IsEmpty()));
  }
};

struct Mode {
  const char* name;
  Flags flags;
};

// In both of them a version is one minibatch, so the tally is the same.
inline const Mode kAsync = {"Async", {"--use_async"}};
inline const Mode kSync = {"Sync", {"--grads_to_wait=1"}};

// A mode, and a value of --failpoints.
using ModeAndPoint = std::tuple<Mode, const char*>;

inline std::string NameOf(const testing::TestParamInfo<ModeAndPoint>& info) {
  return absl::StrCat(
      std::get<0>(info.param).name, "_",
      absl::StrReplaceAll(std::get<1>(info.param),
                          {{":", "_"}, {".", "_"}, {"=", "_"}, {"@", "_"}}));
}
inline Flags FlagsOf(const ModeAndPoint& param) {
  Flags flags = std::get<0>(param).flags;
  flags.push_back(absl::StrCat("--failpoints=", std::get<1>(param)));
  return flags;
}

}  // namespace elasticdl::test
