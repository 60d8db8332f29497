// Which device a worker takes. Without a GPU: what it says. With one, or with
// the test device: who gets which.
#include "device_choice.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <torch/cuda.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::worker {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

class DeviceChoiceTest : public testing::Test {
 protected:
  absl::StatusOr<DeviceLease> Take(const std::string& device,
                                   bool sharing = false) {
    DeviceWish wish;
    wish.device = device;
    wish.sharing = sharing;
    wish.lock_dir = dir_.path() + "/locks";
    return TakeDevice(wish);
  }
  std::string Refusal(const std::string& device) {
    const auto lease = Take(device);
    EXPECT_FALSE(lease.ok());
    return std::string(lease.status().message());
  }
  const bool gpu_ = torch::cuda::is_available();
  elasticdl::test::TempDir dir_;
};

TEST_F(DeviceChoiceTest, TheCpuIsAlwaysThere) {
  const auto lease = Take("cpu");
  ASSERT_TRUE(lease.ok());
  EXPECT_TRUE(lease->device.is_cpu());
}

TEST_F(DeviceChoiceTest, AWishThatIsNoneIsRefused) {
  for (const char* wish : {"gpu", "cuda:", "cuda:x", "cuda:-1", ""}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Take(wish).status())) << wish;
  }
}

TEST_F(DeviceChoiceTest, WithoutAGpuAutoIsTheCpuAndCudaIsRefused) {
  if (gpu_) GTEST_SKIP() << "there is a GPU";
  const auto lease = Take("auto");
  ASSERT_TRUE(lease.ok());
  EXPECT_TRUE(lease->device.is_cpu());
  // It is told once, without advice.
  EXPECT_THAT(lease->why_cpu, AnyOf(HasSubstr("CUDA"), HasSubstr("driver")));
  EXPECT_THAT(Refusal("cuda"), HasSubstr(lease->why_cpu));
  EXPECT_THAT(Refusal("cuda"), HasSubstr("use --device=cpu"));
  EXPECT_TRUE(absl::IsFailedPrecondition(Take("cuda:0").status()));
}

TEST_F(DeviceChoiceTest, AGpuIsForOneWorkerUnlessItIsShared) {
  if (!gpu_) GTEST_SKIP() << "there is no GPU";
  const auto count = static_cast<int>(torch::cuda::device_count());
  std::vector<DeviceLease> leases;
  for (int i = 0; i < count; ++i) {
    auto lease = Take(i == 0 ? "auto" : "cuda");
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_EQ(lease->device, c10::Device(c10::kCUDA, i));
    leases.push_back(*std::move(lease));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Take("cuda").status()));
  EXPECT_THAT(Refusal("cuda"), HasSubstr("--gpu_sharing"));
  // One on the CPU would hold up all the others.
  EXPECT_TRUE(absl::IsResourceExhausted(Take("auto").status()));
  auto shared = Take("cuda", /*sharing=*/true);
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_EQ(shared->device, c10::Device(c10::kCUDA, 0));
  // By its number, too.
  EXPECT_TRUE(absl::IsResourceExhausted(Take("cuda:0").status()));
  EXPECT_THAT(Refusal("cuda:0"), HasSubstr("--gpu_sharing"));
  EXPECT_TRUE(Take("cuda:0", /*sharing=*/true).ok());
  // A worker that is gone leaves its GPU to the next.
  leases.erase(leases.begin());
  const auto next = Take("cuda");
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->device, c10::Device(c10::kCUDA, 0));
}

// A worker with "auto" must not get the GPU that was asked for by number.
TEST_F(DeviceChoiceTest, AGpuThatWasNamedIsTaken) {
  if (!gpu_) GTEST_SKIP() << "there is no GPU";
  const auto count = static_cast<int>(torch::cuda::device_count());
  const auto named = Take("cuda:0");
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->device, c10::Device(c10::kCUDA, 0));
  const auto other = Take("auto");
  if (count > 1) {
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(other->device, c10::Device(c10::kCUDA, 1));
    EXPECT_THAT(Refusal("cuda:0"), HasSubstr("--device=cuda for one that is"));
  } else {
    EXPECT_TRUE(absl::IsResourceExhausted(other.status()));
  }
}

// The process that a new worker replaces may not be gone yet.
TEST_F(DeviceChoiceTest, TheGpuOfAKilledWorkerIsWaitedFor) {
  if (!gpu_) GTEST_SKIP() << "there is no GPU";
  const auto count = static_cast<int>(torch::cuda::device_count());
  std::vector<DeviceLease> leases;
  for (int i = 1; i < count; ++i) leases.push_back(*Take("cuda"));
  // A worker that has the last one. The child of a process that used CUDA
  // cannot use it, so it does by hand what a worker does.
  ASSERT_TRUE(MakeDirectories(dir_.path() + "/locks").ok());
  const std::string file =
      dir_.path() + "/locks/gpu-" + std::to_string(count - 1) + ".0";
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const int fd = open(file.c_str(), O_RDWR | O_CREAT, 0600);
    const std::string pid = std::to_string(getpid());
    const bool took = flock(fd, LOCK_EX | LOCK_NB) == 0 &&
                      write(fd, pid.data(), pid.size()) > 0;
    if (write(pipe[1], took ? "1" : "0", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char took = 0;
  ASSERT_EQ(read(pipe[0], &took, 1), 1);
  EXPECT_EQ(took, '1');
  EXPECT_TRUE(absl::IsResourceExhausted(Take("cuda").status()));
  std::thread killer([&] { kill(holder, SIGKILL); });
  DeviceWish wish;
  wish.device = "auto";
  wish.lock_dir = dir_.path() + "/locks";
  wish.patience = absl::Seconds(150);
  const auto lease = TakeDevice(wish);
  killer.join();
  waitpid(holder, nullptr, 0);
  close(pipe[0]);
  close(pipe[1]);
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_TRUE(lease->device.is_cuda());
}

TEST_F(DeviceChoiceTest, AGpuThatIsNotThereIsRefused) {
  if (!gpu_) GTEST_SKIP() << "there is no GPU";
  EXPECT_THAT(Refusal("cuda:99"), HasSubstr("cuda:0"));
}

}  // namespace
}  // namespace elasticdl::worker
