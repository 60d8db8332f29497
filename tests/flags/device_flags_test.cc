// Where workers compute, and how many there are for the GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <string>
#include <vector>

#include "elasticdl/common/file.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/flags/job_flags.h"
#include "job_flags_rules.h"
#include "support/temp_dir.h"

namespace elasticdl::flags {
namespace {

using testing::HasSubstr;

// Not those of this machine.
[[maybe_unused]] const int no_gpus = setenv("CUDA_VISIBLE_DEVICES", "", 1);

struct Job {
  explicit Job(const std::vector<std::string>& more,
               JobCommand command = JobCommand::kTrain) {
    std::vector<std::string> args = {"--model_def=a.b.c", "--training_data=x",
                                     "--job_name=j"};
    args.insert(args.end(), more.begin(), more.end());
    status = CheckJobFlags(command, args, &flags, &set);
    EXPECT_TRUE(status.ok()) << status;
  }
  JobFlags flags;
  FlagSet set{"test", ""};
  absl::Status status;
};

TEST(DeviceFlagsTest, PodsWithAGpuUseIt) {
  for (const char* resources : {"cpu=4,gpu=1", "nvidia.com/gpu=2",
                                "amd.com/gpu=1", "nvidia.com/mig-1g.5gb=1"}) {
    for (const char* flag : {"request", "limit"}) {
      const std::string given =
          std::string("--worker_resource_") + flag + "=" + resources;
      EXPECT_EQ(Job({"--image=i", given}).flags.device, "cuda") << given;
    }
  }
}

TEST(DeviceFlagsTest, OthersMayUseOne) {
  const std::string gpu = "--worker_resource_request=gpu=1";
  EXPECT_EQ(Job({"--image=i"}).flags.device, "auto");
  EXPECT_EQ(Job({"--image=i", "--worker_resource_request=gpu=0"}).flags.device,
            "auto");
  // It was said.
  EXPECT_EQ(Job({"--image=i", gpu, "--device=auto"}).flags.device, "auto");
  EXPECT_EQ(Job({"--image=i", gpu, "--device=cpu"}).flags.device, "cpu");
  // They compute on the CPU.
  EXPECT_EQ(Job({"--image=i", gpu, "--num_ps_pods=1"}).flags.device, "auto");
  // Local workers do not get what pods request.
  EXPECT_EQ(Job({gpu}).flags.device, "auto");
}

TEST(DeviceFlagsTest, AWorkerForEachGpu) {
  for (const char* device : {"--device=auto", "--device=cuda"}) {
    Job job({device});
    ASSERT_TRUE(FitToGpuCount(4, &job.flags, &job.set).ok());
    EXPECT_EQ(job.flags.num_workers, 4);
    Job few({device, "--num_workers=3"});
    ASSERT_TRUE(FitToGpuCount(4, &few.flags, &few.set).ok());
    EXPECT_EQ(few.flags.num_workers, 3);
    Job many({device, "--num_workers=5"});
    EXPECT_THAT(
        std::string(FitToGpuCount(4, &many.flags, &many.set).message()),
        HasSubstr("--num_workers=5: this host has 4 GPUs; use fewer workers, "
                  "--gpu_sharing, or --device=cpu"));
    Job shared({device, "--num_workers=5", "--gpu_sharing"});
    EXPECT_TRUE(FitToGpuCount(4, &shared.flags, &shared.set).ok());
    Job without({device, "--num_workers=5"});
    EXPECT_TRUE(FitToGpuCount(0, &without.flags, &without.set).ok());
  }
}

TEST(DeviceFlagsTest, OneGpuIsForOneWorker) {
  EXPECT_EQ(Job({"--device=cuda:1"}).flags.num_workers, 1);
  EXPECT_EQ(Job({"--device=cuda:1", "--num_workers=2", "--gpu_sharing"}).status,
            absl::OkStatus());
  Job two({"--num_workers=1"});
  two.flags.device = "cuda:1";
  ASSERT_TRUE(two.set.Set("num_workers", "2").ok());
  EXPECT_THAT(std::string(FitToGpuCount(1, &two.flags, &two.set).message()),
              HasSubstr("--num_workers=2: --device=cuda:1 is one GPU"));
}

TEST(DeviceFlagsTest, GpusAreCountedWithGaps) {
  const elasticdl::test::TempDir dev;
  EXPECT_EQ(CountGpuFiles(dev.path()), 0);
  for (const char* name : {"nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm",
                           "nvidia", "nvidia2x", "null"}) {
    ASSERT_TRUE(std::ofstream(JoinPath(dev.path(), name)).is_open());
  }
  EXPECT_EQ(CountGpuFiles(dev.path()), 2);
}

}  // namespace
}  // namespace elasticdl::flags
