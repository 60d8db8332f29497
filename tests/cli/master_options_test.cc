// What the master is told by a job's flags.
#include "master_options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "job_flags.h"

namespace elasticdl::cli {
namespace {

absl::StatusOr<master::MasterOptions> Make(std::vector<std::string> args) {
  args.insert(args.begin(),
              {"--model_def=a.b.c", "--training_data=x", "--num_workers=1"});
  JobFlags flags;
  FlagSet set("elasticdl-master", "");
  if (ParseJobFlags(JobCommand::kMaster, args, &flags, &set) >= 0) {
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

TEST(MasterOptionsTest, RelaunchingCanBeSwitchedOff) {
  EXPECT_TRUE(Make({})->relaunch);
  EXPECT_TRUE(Make({"--aux_params=disable_relaunch=false"})->relaunch);
  EXPECT_FALSE(Make({"--aux_params=disable_relaunch=true"})->relaunch);
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

}  // namespace
}  // namespace elasticdl::cli
