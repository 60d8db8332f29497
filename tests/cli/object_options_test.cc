// From command lines to the objects of a job.
#include "cluster/object_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elasticdl/cluster/job_objects.h"

namespace elasticdl::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

struct Parsed {
  flags::JobFlags flags;
  flags::FlagSet set{"elasticdl train", ""};
  cluster::JobOptions options;
};

// The options of a command line on top of a plain job.
std::unique_ptr<Parsed> Parse(std::vector<std::string> more = {}) {
  auto parsed = std::make_unique<Parsed>();
  std::vector<std::string> args = {"--job_name=j", "--image=img:1",
                                   "--model_def=m.f", "--training_data=/data"};
  args.insert(args.end(), more.begin(), more.end());
  const absl::Status status = flags::CheckJobFlags(
      flags::JobCommand::kTrain, args, &parsed->flags, &parsed->set);
  EXPECT_TRUE(status.ok()) << status;
  const auto options =
      MakeClusterJobOptions(parsed->flags, parsed->set, "team", "token");
  EXPECT_TRUE(options.ok()) << options.status();
  parsed->options = *options;
  return parsed;
}

TEST(ClusterJobOptionsTest, MasterGetsTheJobsFlagsAndItsPlaces) {
  const auto parsed = Parse(
      {"--num_workers=3", "--namespace=team", "--detach", "--yaml=x",
       "--envs=A=secret", "--worker_pod_priority=0.5", "--state_dir=/home/me",
       "--worker_resource_request=cpu=3,memory=1Gi", "--log_level=DEBUG"});
  const std::vector<std::string>& args = parsed->options.master.args;
  for (const char* arg :
       {"--num_workers=3", "--job_name=j", "--model_def=m.f",
        "--training_data=/data", "--worker_pod_priority=0.5",
        "--log_level=DEBUG", "--num_threads=3", "--pod_backend=kubernetes",
        "--namespace=team", "--port=50001", "--http_port=8080",
        "--state_dir=/var/lib/elasticdl",
        "--token_file=/etc/elasticdl/job/token",
        "--pod_template_dir=/etc/elasticdl/job"}) {
    EXPECT_THAT(args, Contains(arg));
  }
  for (const char* flag : {"--detach", "--yaml", "--envs", "--image",
                           "--worker_resource_request", "--state_dir=/home"}) {
    EXPECT_THAT(args, Not(Contains(StartsWith(flag)))) << flag;
  }
  // The master understands all of it.
  flags::JobFlags flags;
  flags::FlagSet set("elasticdl-master", "");
  EXPECT_TRUE(
      flags::CheckJobFlags(flags::JobCommand::kMaster, args, &flags, &set)
          .ok());
  EXPECT_EQ(flags.http_port, 8080);
  EXPECT_EQ(flags.pod_template_dir, "/etc/elasticdl/job");
  EXPECT_EQ(flags.name_space, "team");
}

TEST(ClusterJobOptionsTest, WorkersGetTokenAndLog) {
  const auto parsed = Parse({"--log_file_path=/logs/l"});
  EXPECT_THAT(parsed->options.worker.command, ElementsAre("elasticdl-worker"));
  EXPECT_THAT(parsed->options.worker.args,
              ElementsAre("--token_file=/etc/elasticdl/job/token",
                          "--log_level=INFO", "--log_file_path=/logs/l"));
  EXPECT_THAT(parsed->options.master.args, Contains("--log_file_path=/logs/l"));
}

TEST(ClusterJobOptionsTest, ServersGetTheirAddressAndAFolder) {
  const auto parsed =
      Parse({"--distribution_strategy=ParameterServerStrategy",
             "--num_ps_pods=2", "--ps_resource_request=cpu=200m,memory=1Gi",
             "--ps_resource_limit=cpu=1,memory=2Gi"});
  const cluster::PodOptions& ps = parsed->options.ps;
  EXPECT_THAT(ps.command, ElementsAre("elasticdl-ps"));
  EXPECT_THAT(ps.args,
              ElementsAre("--token_file=/etc/elasticdl/job/token",
                          "--log_level=INFO", "--worker_address=$(MY_POD_IP)",
                          "--port=2222", "--ps_log=/var/lib/elasticdl/ps",
                          // 45 % of its memory.
                          "--ps_memory_limit=921Mi"));
  EXPECT_EQ(ps.request.at("cpu"), "200m");
  EXPECT_EQ(ps.limit.at("memory"), "2Gi");
  EXPECT_EQ(ps.restart_policy, "OnFailure");
  EXPECT_THAT(parsed->options.master.args, Contains("--num_ps_pods=2"));
  // The server understands its arguments.
  std::vector<std::string> args = ps.args;
  args.push_back("--ps_id=1");
  args.push_back("--master_addr=1.2.3.4:50001");
  flags::JobFlags flags;
  flags::FlagSet set("elasticdl-ps", "");
  const absl::Status status =
      flags::CheckJobFlags(flags::JobCommand::kPs, args, &flags, &set);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(flags.port, 2222);
}

TEST(ClusterJobOptionsTest, ServersGetTheMemoryLimitThatWasGiven) {
  for (const char* limit : {"100Mi", "0"}) {
    const std::string flag = std::string("--ps_memory_limit=") + limit;
    const auto parsed = Parse({"--num_ps_pods=2", flag});
    EXPECT_THAT(parsed->options.ps.args, Contains(flag));
  }
}

TEST(ClusterJobOptionsTest, ServersLogOnAVolumeIsTheJobsOwn) {
  const auto parsed =
      Parse({"--num_ps_pods=2", "--ps_log=/logs/ps", "--restart_policy=Never",
             "--volume=claim_name=c,mount_path=/logs"});
  EXPECT_THAT(parsed->options.ps.args, Contains("--ps_log=/logs/ps/j"));
  EXPECT_EQ(parsed->options.ps.restart_policy, "Never");
  // Which removes those of old runs.
  EXPECT_THAT(parsed->options.master.args, Contains("--ps_log=/logs/ps"));
  EXPECT_THAT(ClusterJobHints(parsed->flags), IsEmpty());
  EXPECT_THAT(ClusterJobHints(Parse({"--ps_log=/tmp/ps"})->flags),
              ElementsAre(HasSubstr("--ps_log=/tmp/ps is in no --volume")));
}

TEST(ClusterJobOptionsTest, DefaultsAreThoseOfTheOriginal) {
  const auto parsed = Parse();
  const cluster::JobOptions& options = parsed->options;
  EXPECT_EQ(options.master.image, "img:1");
  EXPECT_EQ(options.worker.image, "img:1");
  EXPECT_EQ(options.ps.image, "img:1");
  EXPECT_EQ(options.image_pull_policy, "Always");
  EXPECT_EQ(options.master.restart_policy, "OnFailure");
  EXPECT_EQ(options.worker.restart_policy, "Never");
  EXPECT_EQ(options.master.request.at("cpu"), "0.1");
  EXPECT_EQ(options.worker.request.at("memory"), "4096Mi");
  // Two of them fit on a node of two cores, beside a master and the cluster's
  // own pods; each may use a core.
  EXPECT_EQ(options.worker.request.at("cpu"), "0.5");
  EXPECT_EQ(options.worker.limit.at("cpu"), "1");
  EXPECT_EQ(options.worker.limit.at("memory"), "4096Mi");
  EXPECT_THAT(options.master.args, Contains("--num_threads=1"));
}

TEST(ClusterJobOptionsTest, FlagsReachTheirPods) {
  const auto parsed = Parse(
      {"--worker_image=img:2", "--restart_policy=Never",
       "--image_pull_policy=Never", "--master_pod_priority=high-priority",
       "--worker_pod_priority=low-priority", "--ps_pod_priority=p",
       "--worker_resource_limit=cpu=1500m,gpu=1", "--num_threads=7",
       "--volume=claim_name=c,mount_path=/data;host_path=/h,mount_path=/h,"
       "sub_path=s,type=Directory",
       "--envs=A=x=y,B=1,2", "--populate_env_names=AWS_.*"});
  const cluster::JobOptions& options = parsed->options;
  EXPECT_EQ(options.master.image, "img:1");
  EXPECT_EQ(options.worker.image, "img:2");
  EXPECT_EQ(options.ps.image, "img:2");
  EXPECT_EQ(options.master.restart_policy, "Never");
  EXPECT_EQ(options.image_pull_policy, "Never");
  EXPECT_EQ(options.master.priority_class, "high-priority");
  EXPECT_EQ(options.worker.priority_class, "");
  EXPECT_THAT(options.master.args,
              Contains("--worker_pod_priority=low-priority"));
  EXPECT_EQ(options.ps.priority_class, "p");
  EXPECT_EQ(options.worker.limit.at("nvidia.com/gpu"), "1");
  EXPECT_THAT(options.master.args, Contains("--num_threads=7"));
  ASSERT_EQ(options.volumes.size(), 2u);
  EXPECT_EQ(options.volumes[0].claim_name, "c");
  EXPECT_EQ(options.volumes[1].sub_path, "s");
  EXPECT_EQ(options.envs[0].second, "x=y");
  EXPECT_EQ(options.envs[1].second, "1,2");
  EXPECT_EQ(options.populate_env_names, "AWS_.*");
  EXPECT_TRUE(cluster::MakeJobObjects(options).ok());
}

// The command that the design of the original's client submits, as it is there.
TEST(ClusterJobOptionsTest, TheCommandOfTheClientsDesign) {
  const auto parsed =
      Parse({"--image=reg.docker.alibaba-inc.com/bright/elasticdl-wnd:1.0",
             "--model_def=my_model_repo.models.wnd.custom_model",
             "--training_data=/data/mnist/train",
             "--validation_data=/data/mnist/test", "--num_epochs=2",
             "--minibatch_size=64", "--num_minibatches_per_task=2",
             "--num_ps_pods=1", "--num_workers=1", "--evaluation_steps=50",
             "--grads_to_wait=1", "--job_name=test-mnist",
             "--distribution_strategy=ParameterServerStrategy",
             "--master_resource_request=cpu=0.2,memory=1024Mi",
             "--master_resource_limit=cpu=1,memory=2048Mi",
             "--worker_resource_request=cpu=0.4,memory=1024Mi",
             "--worker_resource_limit=cpu=1,memory=2048Mi",
             "--ps_resource_request=cpu=0.2,memory=1024Mi",
             "--ps_resource_limit=cpu=1,memory=2048Mi"});
  for (const cluster::PodOptions* pod :
       {&parsed->options.master, &parsed->options.worker,
        &parsed->options.ps}) {
    EXPECT_EQ(pod->image,
              "reg.docker.alibaba-inc.com/bright/elasticdl-wnd:1.0");
  }
  EXPECT_EQ(parsed->options.ps.request.at("memory"), "1024Mi");
  EXPECT_EQ(parsed->options.ps.limit.at("cpu"), "1");
  const auto objects = cluster::MakeJobObjects(parsed->options);
  ASSERT_TRUE(objects.ok()) << objects.status();
  flags::JobFlags flags;
  flags::FlagSet set("elasticdl-master", "");
  ASSERT_TRUE(flags::CheckJobFlags(flags::JobCommand::kMaster,
                                   parsed->options.master.args, &flags, &set)
                  .ok());
  EXPECT_EQ(flags.num_ps_pods, 1);
  EXPECT_EQ(flags.num_workers, 1);
  EXPECT_EQ(flags.grads_to_wait, 1);
  EXPECT_EQ(flags.evaluation_steps, 50);
  EXPECT_EQ(flags.num_minibatches_per_task, 2);
  EXPECT_FALSE(flags.use_async);
}

TEST(ClusterJobOptionsTest, DefaultRequestFitsTheLimit) {
  const auto parsed = Parse({"--worker_resource_limit=cpu=200m,memory=1Gi"});
  EXPECT_EQ(parsed->options.worker.request.at("cpu"), "200m");
  EXPECT_EQ(parsed->options.worker.request.at("memory"), "1Gi");
  const auto given = Parse({"--worker_resource_request=cpu=2"});
  EXPECT_EQ(given->options.worker.request.at("cpu"), "2");
  EXPECT_THAT(given->options.worker.limit, IsEmpty());
}

TEST(ClusterJobOptionsTest, ThreadsFollowTheCores) {
  EXPECT_THAT(Parse({"--worker_resource_limit=cpu=1500m"})->options.master.args,
              Contains("--num_threads=2"));
  EXPECT_THAT(
      Parse({"--worker_resource_request=memory=1Gi"})->options.master.args,
      Not(Contains(StartsWith("--num_threads"))));
}

TEST(ClusterJobOptionsTest, JobCommandRunsInTheWorkers) {
  auto parsed = std::make_unique<Parsed>();
  ASSERT_TRUE(flags::CheckJobFlags(flags::JobCommand::kTrain,
                                   {"--job_name=j", "--image=i",
                                    "--job_command=echo $WORKER_ID; true"},
                                   &parsed->flags, &parsed->set)
                  .ok());
  const auto options =
      MakeClusterJobOptions(parsed->flags, parsed->set, "team", "token");
  ASSERT_TRUE(options.ok());
  EXPECT_THAT(options->worker.command,
              ElementsAre("/bin/bash", "-c", "echo $WORKER_ID; true"));
  EXPECT_THAT(options->worker.args, IsEmpty());
  EXPECT_THAT(options->master.args,
              Contains("--job_command=echo $WORKER_ID; true"));
}

TEST(ClusterJobOptionsTest, HintsAtResultsThatEndWithTheirPod) {
  EXPECT_THAT(ClusterJobHints(Parse()->flags), IsEmpty());
  // They are in the log of the master, as was asked.
  EXPECT_THAT(ClusterJobHints(Parse({"--event_log=/dev/stdout",
                                     "--ledger_audit=/dev/stdout"})
                                  ->flags),
              IsEmpty());
  const auto lost = Parse({"--output=/out/model", "--checkpoint_dir=ckpt",
                           "--ledger_audit=/a", "--event_log=/outer/e",
                           "--volume=claim_name=c,mount_path=/outer"});
  EXPECT_THAT(ClusterJobHints(lost->flags),
              ElementsAre(HasSubstr("--checkpoint_dir=ckpt is in no --volume"),
                          HasSubstr("--output=/out/model"),
                          HasSubstr("--ledger_audit=/a is in no --volume")));
  const auto kept = Parse({"--output=/out/model", "--checkpoint_dir=/out",
                           "--volume=claim_name=c,mount_path=/out"});
  EXPECT_THAT(ClusterJobHints(kept->flags), IsEmpty());
}

}  // namespace
}  // namespace elasticdl::cli
