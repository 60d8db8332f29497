// What the master is told by a job's flags.
#include "master_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "elasticdl/flags/job_flags.h"

namespace elasticdl::programs {
namespace {

absl::StatusOr<master::MasterOptions> Make(std::vector<std::string> args) {
  args.insert(args.begin(),
              {"--model_def=a.b.c", "--training_data=x", "--num_workers=1"});
  flags::JobFlags flags;
  flags::FlagSet set("elasticdl-master", "");
  if (flags::ParseJobFlags(flags::JobCommand::kMaster, args, &flags, &set) >=
      0) {
    return absl::InvalidArgumentError("flags");
  }
  return MakeMasterOptions(flags, "/bin/elasticdl-master", {});
}

TEST(MasterOptionsTest, HungWorkersAreReplacedUnlessSwitchedOff) {
  EXPECT_EQ(Make({})->task_timeout, absl::ZeroDuration());
  EXPECT_EQ(Make({"--relaunch_timeout_worker"})->task_timeout,
            absl::ZeroDuration());
  EXPECT_EQ(Make({"--task_timeout_secs=2.5"})->task_timeout,
            absl::Seconds(2.5));
  EXPECT_EQ(Make({"--relaunch_timeout_worker=false"})->task_timeout,
            absl::InfiniteDuration());
}

TEST(MasterOptionsTest, SecretsAreNotShown) {
  flags::JobFlags flags;
  flags::FlagSet set("elasticdl-master", "");
  ASSERT_LT(
      flags::ParseJobFlags(
          flags::JobCommand::kMaster,
          {"--model_def=a.b.c", "--num_workers=1", "--envs=A=geheim1",
           "--training_data=s3://me:geheim2@host/a?x=1&token=geheim3",
           "--model_params=width=3; Api_Key=geheim4; password = geheim5=;z=1"},
          &flags, &set),
      0);
  const std::string shown = absl::StrJoin(ShownFlags(set), "\n");
  EXPECT_THAT(shown, testing::Not(testing::HasSubstr("geheim"))) << shown;
  EXPECT_THAT(shown, testing::HasSubstr("s3://***@host/a?x=1&token=***"));
  EXPECT_THAT(shown,
              testing::HasSubstr("width=3; Api_Key=***; password =***;z=1"));
  EXPECT_THAT(shown, testing::HasSubstr("--model_def=a.b.c"));
}

TEST(MasterOptionsTest, RelaunchingCanBeSwitchedOff) {
  EXPECT_TRUE(Make({})->relaunch);
  EXPECT_TRUE(Make({"--aux_params=disable_relaunch=false"})->relaunch);
  EXPECT_FALSE(Make({"--aux_params=disable_relaunch=true"})->relaunch);
}

// A world has a largest size; what is no world has none.
TEST(MasterOptionsTest, NoMoreWorkersThanCanTrainTogether) {
  EXPECT_EQ(Make({})->max_workers, 65536);
  EXPECT_EQ(Make({"--max_workers=8"})->max_workers, 8);
  EXPECT_EQ(Make({"--num_workers=1024"})->max_workers, 65536);
  EXPECT_FALSE(Make({"--num_workers=65537"}).ok());
  EXPECT_FALSE(Make({"--max_workers=65537"}).ok());
  const auto command = Make({"--job_command=x", "--num_workers=70000"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(command->max_workers, 0);
}

TEST(MasterOptionsTest, CommandRunsInEveryWorker) {
  const auto command = Make({"--job_command=x", "--num_workers=3"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(command->job_command, "x");
  EXPECT_EQ(command->num_workers, 3);
  const auto service =
      Make({"--job_command=x", "--need_elasticdl_job_service=true"});
  ASSERT_TRUE(service.ok()) << service.status();
  EXPECT_EQ(service->job_command, "");
}

TEST(MasterOptionsTest, ServersForTrainingOnly) {
  const auto options =
      Make({"--num_ps_pods=2", "--use_async", "--get_model_steps=3",
            "--lr_staleness_modulation", "--sync_version_tolerance=4"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->num_ps_pods, 2);
  EXPECT_EQ(options->ps_argv[0], "/bin/elasticdl-ps");
  EXPECT_EQ(options->job.distribution_strategy(), "ParameterServerStrategy");
  EXPECT_EQ(options->job.num_ps_pods(), 2);
  EXPECT_TRUE(options->job.use_async());
  EXPECT_EQ(options->job.grads_to_wait(), 1);
  EXPECT_EQ(options->job.get_model_steps(), 3);
  EXPECT_EQ(options->job.sync_version_tolerance(), 4);
  EXPECT_TRUE(options->job.lr_staleness_modulation());
  for (const char* other :
       {"--distribution_strategy=AllreduceStrategy", "--job_command=x",
        "--distribution_strategy=Local"}) {
    const auto none = Make({"--num_ps_pods=2", other});
    ASSERT_TRUE(none.ok()) << none.status();
    EXPECT_EQ(none->num_ps_pods, 0) << other;
    EXPECT_EQ(none->job.num_ps_pods(), 0) << other;
  }
}

}  // namespace
}  // namespace elasticdl::programs
