// Parameter servers as processes of a job: started with it, replaced when they
// are killed, gone with it.
#include <signal.h>

#include <memory>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
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

// Without pods, servers find token and folder by the master's address and hear
// from the master that the job is over.
TEST_F(ServersTest, ServerStartedByHand) {
  const std::string folder = JobFolder("hand");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  const auto master =
      Run("master",
          {Program("elasticdl-master"), "--job_name=hand",
           "--model_zoo=" + Zoo(), "--model_def=linear.custom_model",
           "--training_data=" + train_csv(), "--num_ps_pods=1", "--port=0"});
  ASSERT_TRUE(WaitForFile(folder + "/http_address")) << master->err();
  const std::string address =
      std::string(absl::StripAsciiWhitespace(Contents(folder + "/address")));
  const auto start = [&](const std::string& id) {
    return Run("ps-" + id, {Program("elasticdl-ps"), "--ps_id=" + id,
                            "--port=0", "--master_addr=" + address});
  };
  LineFollower log(master->err_path());
  const auto server = start("0");
  while (auto line = log.Next()) {
    if (line->find("server 0 (pid") != std::string::npos) break;
  }
  const auto wrong = start("1");
  EXPECT_EQ(wrong->Wait(), 1);
  EXPECT_THAT(wrong->err(), HasSubstr("no parameter server 1"));
  ASSERT_THAT(List(folder + "/ps"), SizeIs(1));
  master->Signal(SIGTERM);
  EXPECT_EQ(master->Wait(), 1) << master->err();
  EXPECT_EQ(server->Wait(), 0) << server->err();
  // A job that was stopped keeps them; the next run starts without them.
  EXPECT_THAT(List(folder + "/ps"), SizeIs(1));
}

}  // namespace
}  // namespace elasticdl::test
