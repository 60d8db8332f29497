// Jobs inside allocations of a real Slurm (docs/slurm.md). Skipped where Slurm
// is not installed.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"
#include "support/local_slurm.h"

namespace elasticdl::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SlurmTest : public ChaosTest {
 protected:
  void SetUp() override {
    ChaosTest::SetUp();
    StartSlurm(LocalSlurm::Options());
  }
  void StartSlurm(const LocalSlurm::Options& options) {
    auto slurm = LocalSlurm::Start(options);
    if (absl::IsNotFound(slurm.status())) {
      GTEST_SKIP() << slurm.status().message();
    }
    ASSERT_TRUE(slurm.ok()) << slurm.status();
    slurm_ = *std::move(slurm);
  }
  void TearDown() override {
    slurm_.reset();
    ChaosTest::TearDown();
  }

  // Any program that talks to Slurm, then flags of a job that goes slowly.
  std::vector<std::string> Command(std::vector<std::string> argv) {
    argv.insert(argv.begin(), {"env", slurm_->variable()});
    const Flags flags = {"--job_name=slurm",
                         "--model_zoo=" + Zoo(),
                         "--model_def=" + model_,
                         "--model_params=pace=" + pace(),
                         "--training_data=" + chaos_csv(),
                         absl::StrCat("--num_epochs=", kEpochs),
                         "--minibatch_size=8",
                         "--num_minibatches_per_task=2",
                         "--event_log=" + Path("events"),
                         "--ledger_audit=" + Path("audit")};
    argv.insert(argv.end(), flags.begin(), flags.end());
    argv.insert(argv.end(), more_.begin(), more_.end());
    return argv;
  }

  // The job as Slurm numbers it; it requeues itself.
  void Submit(int tasks = 2, const std::string& more = "") {
    const auto submit = Run(
        "submit",
        Command({Program("elasticdl"), "train",
                 absl::StrCat("--slurm=--requeue --ntasks=", tasks, more)}));
    ASSERT_EQ(submit->Wait(), 0) << submit->err();
    const std::string out = submit->out();
    const size_t at = out.find(" is job ");
    ASSERT_NE(at, std::string::npos) << out;
    id_ = out.substr(at + 8, out.find(' ', at + 8) - at - 8);
  }

  // The next event of this kind that `wanted` accepts.
  Json WaitForEvent(
      const std::string& event, const std::function<bool(const Json&)>& wanted =
                                    [](const Json&) { return true; }) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (const auto line = events().Next(deadline - absl::Now())) {
      Json found = Json::parse(*line);
      if (found.at("event") == event && wanted(found)) return found;
    }
    ADD_FAILURE() << "no " << event << "; " << Said();
    return Json::object();
  }
  Json WaitForSize(size_t size) {
    return WaitForEvent("world", [&](const Json& world) {
      return world.at("members").size() == size;
    });
  }
  // Before that there is nothing to save.
  void WaitForCommit() {
    LineFollower audit(Path("audit"));
    EXPECT_TRUE(audit.Next().has_value()) << Said();
  }
  LineFollower& events() {
    if (events_ == nullptr) {
      events_ = std::make_unique<LineFollower>(Path("events"));
    }
    return *events_;
  }

  // Slurm would have a requeued job wait for two minutes, from when it has
  // ended completely. Nobody tells when that is, so it is said until it helps.
  void StartAgain() {
    for (int i = 0; i < 20; ++i) {
      slurm_
          ->Run({"scontrol", "update", "jobid=" + id_, "StartTime=now",
                 "TimeLimit=10"})
          .status()
          .IgnoreError();
      while (const auto line = events().Next(absl::Seconds(3))) {
        if (Json::parse(*line).at("event") == "job_start") return;
      }
    }
    ADD_FAILURE() << "it does not start again: " << slurm_->Logs();
  }
  // Nobody waits for the next full minute. The controller looks at the time
  // limits every 30 seconds.
  void EndIn(int seconds) {
    const auto set = slurm_->Run({"scontrol", "update", "jobid=" + id_,
                                  absl::StrCat("EndTime=now+", seconds)});
    EXPECT_TRUE(set.ok()) << set.status();
  }
  // It has been saved, and the step of that.
  int64_t ExpectSuspension() {
    const Json saved = WaitForEvent("checkpoint");
    const Json end = WaitForEvent("job_end");
    EXPECT_EQ(end.value("exit_code", -1), 5) << Said();
    return saved.value("version", -1);
  }
  // After the end of a job that was suspended at this step.
  void ExpectItGoesOnFrom(int64_t step) {
    Go();
    StartAgain();
    const Json first = WaitForEvent("first_step");
    EXPECT_EQ(first.value("step", -1), step + 1) << Said();
    ExpectItEnds();
  }
  void ExpectItEnds() {
    const Json end = WaitForEvent("job_end");
    EXPECT_EQ(end.value("exit_code", -1), 0) << Said();
    ExpectExactLedger();
  }
  void ExpectExactLedger() {
    EXPECT_TRUE(
        CheckLedger(Path("audit"),
                    {absl::StrCat("--epochs=", kEpochs),
                     absl::StrCat("--shard=", chaos_csv(), ":0:", kRecords)}))
        << Said();
  }

  std::string JobDir() const { return Path("state/elasticdl/jobs/slurm"); }
  std::string Output() const {
    return Contents(absl::StrCat(JobDir(), "/slurm-", id_, ".out"));
  }
  std::string Said() const {
    std::string text = Output();
    for (const std::string& log : List(JobDir() + "/logs")) {
      absl::StrAppend(&text, "== ", log, "\n",
                      Contents(JobDir() + "/logs/" + log));
    }
    return text;
  }

  std::unique_ptr<LocalSlurm> slurm_;
  std::string id_;
  std::string model_ = "linear.custom_model";
  Flags more_;

 private:
  std::unique_ptr<LineFollower> events_;
};

// One worker for each task; a killed one is replaced by a new step.
TEST_F(SlurmTest, KilledWorkerIsReplaced) {
  const auto job = Run(
      "job", Command({"salloc", "--ntasks=3", Program("elasticdl"), "train"}));
  WaitForSize(3);
  const auto steps =
      slurm_->Run({"squeue", "--steps", "--noheader", "--format=%j"});
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_THAT(*steps, HasSubstr("elasticdl-worker-slurm-1"));
  const std::string pid = Contents(JobDir() + "/pids/elasticdl-worker-slurm-1");
  ASSERT_EQ(kill(std::stoi(pid), SIGKILL), 0) << pid;
  const Json created = WaitForEvent("pod_created");
  EXPECT_EQ(created.value("replaces", -1), 1);
  WaitForSize(3);
  Go();
  EXPECT_EQ(job->Wait(), 0) << job->err() << Said();
  ExpectExactLedger();
}

// Two nodes with two workers each. The master is on one of them, and a worker
// of the other is killed.
class SlurmNodesTest : public SlurmTest {
 protected:
  void SetUp() override {
    ChaosTest::SetUp();
    LocalSlurm::Options options;
    options.cpus = 2;
    options.nodes = 2;
    StartSlurm(options);
  }
};

TEST_F(SlurmNodesTest, AJobOverTwoNodes) {
  const auto job = Run("job", Command({"salloc", "--nodes=2", "--ntasks=4",
                                       Program("elasticdl"), "train"}));
  WaitForSize(4);
  const auto steps =
      slurm_->Run({"squeue", "--steps", "--noheader", "--format=%N %j %i"});
  ASSERT_TRUE(steps.ok()) << steps.status();
  std::string away;
  int num_away = 0;
  for (const absl::string_view line : absl::StrSplit(*steps, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] != "node2") continue;
    ++num_away;
    away = words.back();
  }
  EXPECT_EQ(num_away, 2) << *steps;
  ASSERT_TRUE(slurm_->Run({"scancel", "--signal=KILL", away}).ok());
  WaitForSize(3);
  WaitForSize(4);
  Go();
  EXPECT_EQ(job->Wait(), 0) << job->err() << Said();
  ExpectExactLedger();
}

// A whole node is lost, and the job keeps the others.
TEST_F(SlurmNodesTest, ALostNodeTakesItsWorkersOnly) {
  const auto job =
      Run("job", Command({"salloc", "--no-kill", "--nodes=2", "--ntasks=4",
                          Program("elasticdl"), "train"}));
  WaitForSize(4);
  const absl::Status lost = slurm_->LoseNode("node2");
  ASSERT_TRUE(lost.ok()) << lost;
  const Json left = WaitForSize(2);
  const auto steps =
      slurm_->Run({"squeue", "--steps", "--noheader", "--format=%N %j"});
  ASSERT_TRUE(steps.ok()) << steps.status();
  for (const int64_t member : left.at("members")) {
    const std::string pod = absl::StrCat("elasticdl-worker-slurm-", member);
    EXPECT_THAT(*steps, Not(HasSubstr("node2 " + pod)));
    EXPECT_THAT(*steps, HasSubstr(pod));
  }
  Go();
  EXPECT_EQ(job->Wait(), 0) << job->err() << Said();
  ExpectExactLedger();
}

// Preemption reaches the steps only. All workers leave, so the job is
// suspended, and goes on when Slurm starts it again.
TEST_F(SlurmTest, PreemptedJobIsSavedAndGoesOn) {
  Submit();
  WaitForSize(2);
  WaitForCommit();
  ASSERT_TRUE(slurm_
                  ->Run({"sbatch", "--partition=high", "--ntasks=8",
                         "--output=/dev/null", "--wrap=true"})
                  .ok());
  const Json saved = WaitForEvent("checkpoint");
  const Json end = WaitForEvent("job_end");
  EXPECT_EQ(end.value("exit_code", -1), 5) << Said();
  ExpectItGoesOnFrom(saved.value("version", -1));
}

// It is saved, but nobody wants it to go on.
TEST_F(SlurmTest, CancelledJobIsNotRequeued) {
  Submit();
  WaitForSize(2);
  WaitForCommit();
  ASSERT_TRUE(slurm_->Run({"scancel", id_}).ok());
  WaitForEvent("checkpoint");
  const Json end = WaitForEvent("job_end");
  EXPECT_EQ(end.value("exit_code", -1), 5) << Said();
  // All CPUs: it starts when nothing of the job is left.
  const auto over = slurm_->Run({"srun", "--ntasks=8", "true"});
  ASSERT_TRUE(over.ok()) << over.status();
  const auto state = slurm_->Run({"scontrol", "show", "job", id_});
  EXPECT_THAT(state.value_or(""), HasSubstr("JobState=CANCELLED"));
}

// The notice before the time limit, to the batch script.
TEST_F(SlurmTest, NoticeToTheBatchScript) {
  Submit();
  WaitForSize(2);
  WaitForCommit();
  const std::vector<std::string> notice = {
      "env", slurm_->variable(), "scancel", "--signal=TERM", "--batch", id_};
  // Repeated, as Slurm does it. Nobody waits for the repetitions: when the job
  // is about to be requeued, scancel tries again for more than a minute.
  const auto first = Run("notice", notice);
  EXPECT_EQ(first->Wait(), 0) << first->err();
  const auto second = Run("second", notice);
  const auto third = Run("third", notice);
  const Json saved = WaitForEvent("checkpoint");
  WaitForEvent("job_end");
  ExpectItGoesOnFrom(saved.value("version", -1));
}

// What --slurm asks for by itself: a minute before the time limit the batch
// script gets SIGTERM.
TEST_F(SlurmTest, TheTimeLimitComesNear) {
  Submit(2, " --time=10");
  WaitForSize(2);
  WaitForCommit();
  EndIn(80);
  ExpectItGoesOnFrom(ExpectSuspension());
}

// --signal without B: says it to the steps, so all workers leave by themselves.
TEST_F(SlurmTest, NoticeToTheSteps) {
  Submit(2, " --time=10 --signal=TERM@60");
  WaitForSize(2);
  WaitForCommit();
  EndIn(80);
  ExpectItGoesOnFrom(ExpectSuspension());
}

// SIGTERM to everything, and SIGKILL some seconds later. Slurm does not requeue
// such a job by itself; who does has it go on.
TEST_F(SlurmTest, TheTimeLimitWithoutANotice) {
  Submit(2, " --time=10 --signal=CONT@1");
  WaitForSize(2);
  WaitForCommit();
  EndIn(2);
  const int64_t step = ExpectSuspension();
  // All CPUs: nothing of the job is left.
  const auto over = slurm_->Run({"srun", "--ntasks=8", "true"});
  ASSERT_TRUE(over.ok()) << over.status();
  const auto state = slurm_->Run({"scontrol", "show", "job", id_});
  EXPECT_THAT(state.value_or(""), HasSubstr("JobState=TIMEOUT"));
  const auto requeue = slurm_->Run({"scontrol", "requeue", id_});
  ASSERT_TRUE(requeue.ok()) << requeue.status();
  ExpectItGoesOnFrom(step);
}

// Slurm refuses the first steps. They are tried again, and the job goes on.
TEST_F(SlurmTest, ASrunThatCannotStartIsTriedAgain) {
  std::filesystem::create_directory(Path("bin"));
  std::ofstream(Path("bin/srun"))
      << "#!/bin/sh\n"
         "if mkdir \"$0.first\" 2> /dev/null ||\n"
         "  mkdir \"$0.second\" 2> /dev/null; then\n"
         "  echo 'srun: error: Unable to create step: no luck' >&2\n"
         "  exit 1\n"
         "fi\n"
         "exec /usr/bin/srun \"$@\"\n";
  std::filesystem::permissions(Path("bin/srun"),
                               std::filesystem::perms::owner_all);
  const auto job =
      Run("job",
          Command({"salloc", "--ntasks=2", "env",
                   absl::StrCat("PATH=", Path("bin"), ":", std::getenv("PATH")),
                   Program("elasticdl"), "train"}));
  WaitForSize(2);
  EXPECT_TRUE(std::filesystem::exists(Path("bin/srun.second")));
  Go();
  EXPECT_EQ(job->Wait(), 0) << job->err() << Said();
  EXPECT_THAT(job->err() + job->out(), HasSubstr("srun could not start it"));
  ExpectExactLedger();
}

// Servers are steps, too. A killed server and a killed worker are replaced; the
// notice saves the model, and the requeued job starts servers that read it.
TEST_F(SlurmTest, ParameterServers) {
  model_ = "tally.custom_model";
  more_ = {"--distribution_strategy=ParameterServerStrategy",
           "--num_ps_pods=2"};
  Walk();
  Submit(4);
  WaitForCommit();
  const auto steps =
      slurm_->Run({"squeue", "--steps", "--noheader", "--format=%j"});
  ASSERT_TRUE(steps.ok()) << steps.status();
  for (const char* pod : {"elasticdl-ps-slurm-1", "elasticdl-worker-slurm-1"}) {
    EXPECT_THAT(*steps, HasSubstr(pod));
    const std::string pid = Contents(absl::StrCat(JobDir(), "/pids/", pod));
    ASSERT_EQ(kill(std::stoi(pid), SIGKILL), 0) << pid;
    WaitForEvent("pod_ended",
                 [&](const Json& event) { return event.at("pod") == pod; });
    WaitForEvent("pod_created");
  }
  WaitForEvent("worker_ready");
  ASSERT_TRUE(slurm_->Run({"scancel", "--signal=TERM", "--batch", id_}).ok());
  WaitForEvent("checkpoint");
  const Json end = WaitForEvent("job_end");
  EXPECT_EQ(end.value("exit_code", -1), 5) << Said();
  Go();
  StartAgain();
  ExpectItEnds();
}

TEST_F(SlurmTest, BadOptionsAreToldBySbatch) {
  const auto submit = Run("submit", Command({Program("elasticdl"), "train",
                                             "--slurm=--partition=no-such"}));
  EXPECT_EQ(submit->Wait(), 1);
  EXPECT_THAT(submit->err(), HasSubstr("invalid partition"));
}

}  // namespace
}  // namespace elasticdl::test
