// Parameter servers as processes of a job: started with it, replaced when they
// are killed, gone with it.
#include <signal.h>

#include <memory>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "gmock/gmock.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ServersTest : public JobTest {
 protected:
  std::string JobFolder(const std::string& name) const {
    return Path(absl::StrCat("state/elasticdl/jobs/", name));
  }
  // Waits for the first pod of a server.
  static pid_t WaitForServer(Job& job, int64_t id) {
    const Json started = job.WaitForEvent("pod_started", [&](const Json& pod) {
      return pod.at("type") == "ps" && pod.at("id") == id;
    });
    return started.value("pid", 0);
  }
};

TEST_F(ServersTest, ServersOfAJobEndWithIt) {
  const auto job =
      Train("served", {"--distribution_strategy=ParameterServerStrategy",
                       "--num_ps_pods=2", "--num_workers=2", "--use_async"});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_EQ(job->End().at("exit_code"), 0);
  std::set<std::string> pods;
  for (const Json& started : job->Events("pod_started")) {
    if (started.at("type") == "ps") pods.insert(started.at("pod"));
  }
  EXPECT_EQ(pods, (std::set<std::string>{"elasticdl-ps-served-0",
                                         "elasticdl-ps-served-1"}));
  for (const std::string& pod : pods) {
    const std::string log =
        Contents(absl::StrCat(JobFolder("served"), "/logs/", pod, ".log"));
    EXPECT_THAT(log, HasSubstr("for workers at 127.0.0.1:"));
  }
  // What they knew is not needed any more.
  EXPECT_THAT(List(JobFolder("served") + "/ps"), IsEmpty());
}

TEST_F(ServersTest, KilledServerIsStartedAgain) {
  const std::string gate = MakeGate();
  const auto job = Train(
      "killed",
      {"--distribution_strategy=ParameterServerStrategy", "--num_ps_pods=1",
       "--num_workers=1", "--use_async", "--ps_log=" + Path("logs"),
       absl::StrCat("--model_params=gate=", gate, ";gate_step=2")});
  const pid_t pid = WaitForServer(*job, 0);
  ASSERT_TRUE(WaitForGate(gate)) << job->Output();
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  const pid_t next = WaitForServer(*job, 0);
  EXPECT_NE(next, pid);
  OpenGate(gate);
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(job->Events("pod_ended"), SizeIs(3));
  EXPECT_THAT(List(Path("logs/killed")), IsEmpty());
}

TEST_F(ServersTest, WhyAServerCannotStartIsTheErrorOfTheJob) {
  // A file where the folder should be.
  const auto job = Train(
      "no-log", {"--distribution_strategy=ParameterServerStrategy",
                 "--num_ps_pods=1", "--num_workers=1",
                 "--relaunch_on_worker_failure=0", "--ps_log=" + train_csv()});
  EXPECT_EQ(job->Wait(), 1) << job->Output();
  const std::string reason = job->End().at("reason");
  EXPECT_THAT(reason, HasSubstr("elasticdl-ps-no-log-0 failed: exit code 1: "));
  EXPECT_THAT(reason, HasSubstr("train.csv")) << job->Output();
  EXPECT_THAT(job->process().err(), HasSubstr(reason));
}

// It would be killed for its memory otherwise, again and again.
TEST_F(ServersTest, AModelThatDoesNotFitFailsTheJob) {
  for (const char* mode : {"--use_async", "--grads_to_wait=1"}) {
    const auto job =
        Train(absl::StrCat("full", std::string(mode).substr(2, 3)),
              {"--distribution_strategy=ParameterServerStrategy",
               "--num_ps_pods=1", "--num_workers=2", mode,
               "--model_def=tally.custom_model", "--model_params=dense=10",
               "--minibatch_size=8", "--ps_memory_limit=100Ki"});
    EXPECT_EQ(job->Wait(), 1) << job->Output();
    const std::string reason = job->End().at("reason");
    EXPECT_THAT(reason, HasSubstr("more rows of table seen")) << job->Output();
    EXPECT_THAT(reason, HasSubstr("102400 bytes"));
    EXPECT_THAT(reason, HasSubstr("--ps_memory_limit"));
    // One server all the time.
    int servers = 0;
    for (const Json& started : job->Events("pod_started")) {
      servers += started.at("type") == "ps" ? 1 : 0;
    }
    EXPECT_EQ(servers, 1);
    EXPECT_THAT(
        Contents(absl::StrCat(JobFolder(job->name()), "/logs/elasticdl-ps-",
                              job->name(), "-0.log")),
        HasSubstr("of the 102400 bytes that it may use"));
  }
}

// Before that the user hears of it, and has time: an empty table, 320 rows of
// 24 bytes in some 280 buckets of 256, and 40 bytes of dense parameters.
TEST_F(ServersTest, AModelThatNearlyDoesNotFitIsToldOnce) {
  const auto job =
      Train("nearly", {"--distribution_strategy=ParameterServerStrategy",
                       "--num_ps_pods=1", "--num_workers=1", "--use_async",
                       "--model_def=tally.custom_model", "--num_epochs=0",
                       "--model_params=dense=10", "--ps_memory_limit=145K"});
  const Json told = job->WaitForEvent("ps_nearly_full");
  EXPECT_EQ(told.value("server", -1), 0) << job->Output();
  EXPECT_GT(told.value("bytes", 0), 130500);
  EXPECT_EQ(told.value("limit", 0), 145000);
  const auto stop =
      Run("stop", {Program("elasticdl"), "stop", "--job_name=nearly"});
  EXPECT_EQ(stop->Wait(), 0) << stop->err();
  EXPECT_EQ(job->Wait(), 1) << job->Output();
  EXPECT_THAT(job->Events("ps_nearly_full"), SizeIs(1));
  EXPECT_THAT(job->process().out(),
              HasSubstr("of the 145000 bytes that it may use: pushes that add "
                        "rows are slowed down"));
  EXPECT_THAT(job->process().out(),
              HasSubstr("elasticdl scale --job_name=nearly --num_ps_pods=N"));
}

// Tables that evict stop growing instead: 20,000 rows of 32 bytes, with their
// buckets 1.1 MB, do not fit, but as many are allowed.
TEST_F(ServersTest, EvictionKeepsAModelBelowTheLimit) {
  WriteCsv(Path("many.csv"), 20000);
  const auto job = Train(
      "evicting",
      {"--distribution_strategy=ParameterServerStrategy", "--num_ps_pods=1",
       "--num_workers=1", "--use_async", "--model_def=tally.custom_model",
       "--training_data=" + Path("many.csv"), "--minibatch_size=500",
       "--model_params=dense=10", "--embedding_max_rows=4194304",
       "--ps_memory_limit=800K"});
  EXPECT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(
      Contents(JobFolder("evicting") + "/logs/elasticdl-ps-evicting-0.log"),
      HasSubstr("tables with --embedding_max_rows grow no more"));
}

// A table takes 58 KB on each server before it has any row.
TEST_F(ServersTest, FewerServersThanTheModelNeedsAreRefused) {
  const auto job =
      Train("needs", {"--distribution_strategy=ParameterServerStrategy",
                      "--num_ps_pods=2", "--num_workers=1", "--use_async",
                      "--model_def=tally.custom_model", "--num_epochs=0",
                      "--model_params=dense=10", "--ps_memory_limit=120K"});
  // From then on servers have their part, and tell what they use as often as
  // there is progress.
  job->WaitForEvent("first_step");
  for (int i = 0; i < 3; ++i) job->WaitForEvent("progress");
  const auto scale = Run("scale", {Program("elasticdl"), "scale",
                                   "--job_name=needs", "--num_ps_pods=1"});
  EXPECT_EQ(scale->Wait(), 1);
  EXPECT_THAT(scale->err(), HasSubstr("bytes on 2 parameter servers, and each "
                                      "may use 120000 (--ps_memory_limit"));
  EXPECT_THAT(scale->err(), HasSubstr("it needs at least 2, not 1"));
  const auto more = Run("more", {Program("elasticdl"), "scale",
                                 "--job_name=needs", "--num_ps_pods=3"});
  EXPECT_EQ(more->Wait(), 0) << more->err();
  job->WaitForEvent("ps_scaled");
  const auto stop =
      Run("stop", {Program("elasticdl"), "stop", "--job_name=needs"});
  EXPECT_EQ(stop->Wait(), 0) << stop->err();
  EXPECT_EQ(job->Wait(), 1) << job->Output();
  EXPECT_THAT(job->Events("ps_scaling"), SizeIs(1));
}

TEST_F(ServersTest, RowsAreEvicted) {
  const auto job = Train(
      "evicts", {"--distribution_strategy=ParameterServerStrategy",
                 "--num_ps_pods=2", "--num_workers=2", "--use_async",
                 "--model_def=tally.custom_model", "--num_epochs=2",
                 "--embedding_max_rows=1024", "--embedding_eviction=frequency",
                 "--embedding_min_count=2", "--embedding_dtype=bfloat16",
                 "--ps_audit=" + Path("applied"), "--output=" + Path("out")});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_TRUE(LedgerIsExact(job->audit(), 2, PsAudits(Path("applied"))));
}

TEST_F(ServersTest, LogsOfAServerAreThoseOfAllItsProcesses) {
  const std::string logs = JobFolder("many") + "/logs/";
  ASSERT_TRUE(MakeDirectories(logs).ok());
  for (const char* suffix : {"-10", "-1-r10", "-1", "-1-r2", "-0"}) {
    ASSERT_TRUE(
        WriteFileAtomic(absl::StrCat(logs, "elasticdl-ps-many", suffix, ".log"),
                        absl::StrCat("server", suffix, "\n"))
            .ok());
  }
  const auto shown =
      Run("logs", {Program("elasticdl"), "logs", "--job_name=many", "ps-1"});
  EXPECT_EQ(shown->Wait(), 0) << shown->err();
  EXPECT_EQ(shown->out(),
            "==> elasticdl-ps-many-1 <==\nserver-1\n"
            "==> elasticdl-ps-many-1-r2 <==\nserver-1-r2\n"
            "==> elasticdl-ps-many-1-r10 <==\nserver-1-r10\n");
}

// Without pods, servers find token and folder by the master's address.
class ServersByHandTest : public ServersTest {
 protected:
  ServersByHandTest() { EXPECT_TRUE(MakeDirectories(folder_).ok()); }

  // Started again, it listens where it did before.
  void StartMaster(const std::string& name) {
    const std::string port =
        address_.empty() ? "0" : address_.substr(address_.rfind(':') + 1);
    const std::string published = folder_ + "/http_address";
    EXPECT_TRUE(RemoveTree(published).ok());
    master_ =
        Run(name, {Program("elasticdl-master"), "--job_name=hand",
                   "--model_zoo=" + Zoo(), "--model_def=linear.custom_model",
                   "--training_data=" + train_csv(), "--num_ps_pods=1",
                   "--master_timeout=60", "--port=" + port});
    ASSERT_TRUE(WaitForFile(published)) << master_->err();
    address_ =
        std::string(absl::StripAsciiWhitespace(Contents(folder_ + "/address")));
  }
  std::unique_ptr<ChildProcess> StartServer(const std::string& id) {
    return Run("ps-" + id, {Program("elasticdl-ps"), "--ps_id=" + id,
                            "--port=0", "--master_addr=" + address_});
  }
  // The master knows where server 0 is.
  bool WaitForServer() {
    LineFollower log(master_->err_path());
    while (auto line = log.Next()) {
      if (absl::StrContains(*line, "server 0 (pid")) return true;
    }
    return false;
  }

  const std::string folder_ = JobFolder("hand");
  std::string address_;
  std::unique_ptr<ChildProcess> master_;
};

TEST_F(ServersByHandTest, ServerHearsThatTheJobIsOver) {
  StartMaster("master");
  const auto server = StartServer("0");
  EXPECT_TRUE(WaitForServer()) << server->err();
  const auto wrong = StartServer("1");
  EXPECT_EQ(wrong->Wait(), 1);
  EXPECT_THAT(wrong->err(), HasSubstr("no parameter server 1"));
  EXPECT_THAT(List(folder_ + "/ps"), SizeIs(1));
  master_->Signal(SIGTERM);
  EXPECT_EQ(master_->Wait(), 1) << master_->err();
  EXPECT_EQ(server->Wait(), 0) << server->err();
  // A job that was stopped keeps them; the next run starts without them.
  EXPECT_THAT(List(folder_ + "/ps"), SizeIs(1));
}

TEST_F(ServersByHandTest, ServerOutlivesItsMaster) {
  StartMaster("first");
  const auto server = StartServer("0");
  EXPECT_TRUE(WaitForServer()) << server->err();
  const auto runs = List(folder_ + "/ps");
  master_->Signal(SIGKILL);
  EXPECT_EQ(master_->Wait(), 128 + SIGKILL);
  StartMaster("second");
  EXPECT_TRUE(WaitForServer()) << server->err();
  EXPECT_EQ(List(folder_ + "/ps"), runs);
  master_->Signal(SIGTERM);
  EXPECT_EQ(master_->Wait(), 1) << master_->err();
  EXPECT_EQ(server->Wait(), 0) << server->err();
}

}  // namespace
}  // namespace elasticdl::test
