// The double of libcudart: does it show the mistakes that it is there to show?
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "test_cudart.h"

namespace {

class CudartTest : public testing::TestWithParam<TestCudartSchedule> {
 protected:
  void SetUp() override {
    test_cudart_set_schedule(GetParam());
    ASSERT_EQ(cudaSuccess, cudaMalloc(&device_, kBytes));
    ASSERT_EQ(cudaSuccess, cudaHostAlloc(&pinned_, kBytes, 0));
    ASSERT_EQ(cudaSuccess,
              cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking));
    ASSERT_EQ(cudaSuccess,
              cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  void TearDown() override {
    test_cudart_break(cudaSuccess);
    EXPECT_EQ(cudaSuccess, cudaEventDestroy(event_));
    EXPECT_EQ(cudaSuccess, cudaStreamDestroy(side_));
    EXPECT_EQ(cudaSuccess, cudaFreeHost(pinned_));
    EXPECT_EQ(cudaSuccess, cudaFree(device_));
    EXPECT_EQ(0U, test_cudart_allocated());
    cudaGetLastError();
  }
  bool IsNullLazy() const { return (GetParam() & kTestCudartNullLazy) != 0; }
  bool IsSideLazy() const { return (GetParam() & kTestCudartSideLazy) != 0; }
  int* pinned() { return static_cast<int*>(pinned_); }

  static constexpr size_t kBytes = 4096;
  void* device_ = nullptr;
  void* pinned_ = nullptr;
  cudaStream_t side_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

void SetFlag(void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }

TEST_P(CudartTest, CopiesThereAndBack) {
  std::vector<char> out(kBytes, 'x');
  std::vector<char> in(kBytes, 'y');
  ASSERT_EQ(cudaSuccess,
            cudaMemcpy(device_, out.data(), kBytes, cudaMemcpyHostToDevice));
  ASSERT_EQ(cudaSuccess,
            cudaMemcpy(in.data(), device_, kBytes, cudaMemcpyDeviceToHost));
  EXPECT_EQ(out, in);
}

TEST_P(CudartTest, HostCannotTouchDeviceMemory) {
  EXPECT_DEATH({ *static_cast<volatile int*>(device_) = 1; }, "");
  int pipes[2];
  ASSERT_EQ(0, pipe(pipes));
  EXPECT_EQ(-1, write(pipes[1], device_, 16));
  EXPECT_EQ(EFAULT, errno);
  close(pipes[0]);
  close(pipes[1]);
  EXPECT_EQ(nullptr, test_cudart_host(pinned_));
  EXPECT_EQ(-1, test_cudart_device_of(pinned_));
  EXPECT_EQ(0, test_cudart_device_of(device_));
}

TEST_P(CudartTest, NewAndFreedMemoryIsNaN) {
  void* memory = nullptr;
  ASSERT_EQ(cudaSuccess, cudaMalloc(&memory, 8));
  const auto* const bytes =
      static_cast<const unsigned char*>(test_cudart_host(memory));
  EXPECT_EQ(0xff, bytes[7]);
  ASSERT_EQ(cudaSuccess, cudaMemset(memory, 0, 8));
  ASSERT_EQ(cudaSuccess, cudaDeviceSynchronize());
  EXPECT_EQ(0, bytes[7]);
  ASSERT_EQ(cudaSuccess, cudaFree(memory));
  EXPECT_EQ(0xff, bytes[7]);
}

TEST_P(CudartTest, LazyStreamRunsOnlyWhenAsked) {
  std::atomic<bool> null_ran{false};
  std::atomic<bool> side_ran{false};
  ASSERT_EQ(cudaSuccess, cudaLaunchHostFunc(nullptr, SetFlag, &null_ran));
  ASSERT_EQ(cudaSuccess, cudaLaunchHostFunc(side_, SetFlag, &side_ran));
  // An eager stream gets there on its own.
  while (!IsNullLazy() && !null_ran) sched_yield();
  while (!IsSideLazy() && !side_ran) sched_yield();
  EXPECT_EQ(!IsNullLazy(), null_ran);
  EXPECT_EQ(!IsSideLazy(), side_ran);
  ASSERT_EQ(cudaSuccess, cudaStreamSynchronize(nullptr));
  EXPECT_TRUE(null_ran);
  // A query never waits, but the stream goes on.
  while (cudaStreamQuery(side_) == cudaErrorNotReady) sched_yield();
  EXPECT_TRUE(side_ran);
}

TEST_P(CudartTest, MissingWaitShows) {
  // With eager streams it is a matter of luck.
  if (GetParam() == kTestCudartEager) return;
  // The reader should wait for the writer, and does not.
  cudaStream_t const writer = IsNullLazy() ? nullptr : side_;
  cudaStream_t const reader = IsNullLazy() ? side_ : nullptr;
  pinned()[0] = 7;
  ASSERT_EQ(cudaSuccess, cudaMemcpyAsync(device_, pinned_, sizeof(int),
                                         cudaMemcpyHostToDevice, writer));
  ASSERT_EQ(cudaSuccess, cudaMemcpyAsync(pinned() + 1, device_, sizeof(int),
                                         cudaMemcpyDeviceToHost, reader));
  ASSERT_EQ(cudaSuccess, cudaStreamSynchronize(reader));
  EXPECT_EQ(-1, pinned()[1]);
}

TEST_P(CudartTest, StreamWaitsForEventOfAnother) {
  pinned()[0] = 7;
  ASSERT_EQ(cudaSuccess, cudaMemcpyAsync(device_, pinned_, sizeof(int),
                                         cudaMemcpyHostToDevice, nullptr));
  ASSERT_EQ(cudaSuccess, cudaEventRecord(event_, nullptr));
  ASSERT_EQ(cudaSuccess, cudaStreamWaitEvent(side_, event_, 0));
  ASSERT_EQ(cudaSuccess, cudaMemcpyAsync(pinned() + 1, device_, sizeof(int),
                                         cudaMemcpyDeviceToHost, side_));
  ASSERT_EQ(cudaSuccess, cudaStreamSynchronize(side_));
  EXPECT_EQ(7, pinned()[1]);
}

TEST_P(CudartTest, EventThatWasNeverRecordedIsDone) {
  EXPECT_EQ(cudaSuccess, cudaEventQuery(event_));
  EXPECT_EQ(cudaSuccess, cudaStreamWaitEvent(side_, event_, 0));
}

TEST_P(CudartTest, DestroyedStreamStillDoesItsWork) {
  std::atomic<bool> ran{false};
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaSuccess,
            cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_EQ(cudaSuccess, cudaLaunchHostFunc(stream, SetFlag, &ran));
  ASSERT_EQ(cudaSuccess, cudaEventRecord(event_, stream));
  ASSERT_EQ(cudaSuccess, cudaStreamDestroy(stream));
  EXPECT_EQ(cudaErrorInvalidResourceHandle, cudaStreamQuery(stream));
  ASSERT_EQ(cudaSuccess, cudaEventSynchronize(event_));
  EXPECT_TRUE(ran);
}

TEST_P(CudartTest, PageableCopyWaitsForTheStream) {
  std::atomic<bool> ran{false};
  ASSERT_EQ(cudaSuccess, cudaLaunchHostFunc(side_, SetFlag, &ran));
  int value = 3;
  ASSERT_EQ(cudaSuccess, cudaMemcpyAsync(device_, &value, sizeof(value),
                                         cudaMemcpyHostToDevice, side_));
  EXPECT_TRUE(ran);
  // It is in the staging buffer by now.
  value = 4;
  ASSERT_EQ(cudaSuccess, cudaMemcpyAsync(&value, device_, sizeof(value),
                                         cudaMemcpyDeviceToHost, side_));
  EXPECT_EQ(3, value);
}

TEST_P(CudartTest, RefusesWrongAddresses) {
  EXPECT_EQ(cudaErrorInvalidValue,
            cudaMemcpy(device_, pinned_, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(cudaErrorInvalidValue,
            cudaMemcpy(device_, pinned_, kBytes + 1, cudaMemcpyHostToDevice));
  EXPECT_EQ(cudaErrorInvalidValue, cudaMemset(pinned_, 0, 4));
  EXPECT_EQ(cudaErrorInvalidValue, cudaFree(static_cast<char*>(device_) + 512));
  EXPECT_EQ(cudaErrorInvalidValue, cudaFree(pinned_));
  EXPECT_EQ(cudaErrorInvalidValue, cudaFreeHost(device_));
  EXPECT_EQ(cudaErrorInvalidValue, cudaGetLastError());
  EXPECT_EQ(cudaSuccess, cudaGetLastError());
}

TEST_P(CudartTest, RefusesWhatIsNoHandle) {
  auto* const no_stream = reinterpret_cast<cudaStream_t>(device_);
  EXPECT_EQ(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(no_stream));
  EXPECT_EQ(cudaErrorInvalidResourceHandle, cudaStreamDestroy(nullptr));
  EXPECT_EQ(cudaErrorInvalidResourceHandle,
            cudaEventQuery(reinterpret_cast<cudaEvent_t>(device_)));
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaErrorNotSupported, cudaStreamCreate(&stream));
}

TEST_P(CudartTest, RefusesCallsInHostFunctions) {
  std::atomic<int> error{-1};
  ASSERT_EQ(cudaSuccess, cudaLaunchHostFunc(
                             side_,
                             [](void* result) {
                               static_cast<std::atomic<int>*>(result)->store(
                                   cudaStreamQuery(nullptr));
                             },
                             &error));
  ASSERT_EQ(cudaSuccess, cudaStreamSynchronize(side_));
  EXPECT_EQ(cudaErrorNotPermitted, error);
}

TEST_P(CudartTest, ForkedChildCannotUseIt) {
  const pid_t child = fork();
  if (child == 0) _exit(cudaStreamQuery(nullptr));
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(cudaErrorInitializationError, WEXITSTATUS(status));
}

TEST_P(CudartTest, BrokenDeviceStaysBroken) {
  test_cudart_break(cudaErrorIllegalAddress);
  EXPECT_EQ(cudaErrorIllegalAddress, cudaStreamSynchronize(side_));
  EXPECT_EQ(cudaErrorIllegalAddress, cudaGetLastError());
  EXPECT_EQ(cudaErrorIllegalAddress, cudaGetLastError());
}

TEST_P(CudartTest, RunsOutOfMemory) {
  size_t free = 0;
  size_t total = 0;
  ASSERT_EQ(cudaSuccess, cudaMemGetInfo(&free, &total));
  EXPECT_EQ(total - kBytes, free);
  void* memory = nullptr;
  EXPECT_EQ(cudaErrorMemoryAllocation, cudaMalloc(&memory, total));
  EXPECT_EQ(nullptr, memory);
  EXPECT_STREQ("out of memory", cudaGetErrorString(cudaErrorMemoryAllocation));
}

TEST_P(CudartTest, MeasuresTime) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  ASSERT_EQ(cudaSuccess, cudaEventCreate(&begin));
  ASSERT_EQ(cudaSuccess, cudaEventCreate(&end));
  float milliseconds = -1;
  EXPECT_EQ(cudaErrorInvalidResourceHandle,
            cudaEventElapsedTime(&milliseconds, begin, end));
  ASSERT_EQ(cudaSuccess, cudaEventRecord(begin, side_));
  ASSERT_EQ(cudaSuccess, cudaEventRecord(end, side_));
  ASSERT_EQ(cudaSuccess, cudaEventSynchronize(end));
  ASSERT_EQ(cudaSuccess, cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(cudaSuccess, cudaEventDestroy(begin));
  EXPECT_EQ(cudaSuccess, cudaEventDestroy(end));
}

std::string NameOf(const testing::TestParamInfo<TestCudartSchedule>& info) {
  static const char* const names[] = {"Eager", "NullLazy", "SideLazy",
                                      "AllLazy"};
  return names[info.param];
}
INSTANTIATE_TEST_SUITE_P(Schedules, CudartTest,
                         testing::Values(kTestCudartEager, kTestCudartNullLazy,
                                         kTestCudartSideLazy,
                                         kTestCudartAllLazy),
                         NameOf);

// What TEST_CUDART_DEVICES does is read once per process, so in a child.
TEST(CudartDevicesTest, SettingsDecideHowManyThereAre) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("TEST_CUDART_DEVICES", "0", 1);
        int count = 17;
        const cudaError_t error = cudaGetDeviceCount(&count);
        _exit(error == cudaErrorNoDevice && count == 17 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        setenv("TEST_CUDART_DEVICES", "2", 1);
        setenv("TEST_CUDART_MEMORY", "8192", 1);
        void* first = nullptr;
        void* second = nullptr;
        bool good = cudaMalloc(&first, 8192) == cudaSuccess &&
                    cudaMalloc(&second, 1) == cudaErrorMemoryAllocation;
        good = good && cudaSetDevice(1) == cudaSuccess &&
               cudaMalloc(&second, 8192) == cudaSuccess &&
               test_cudart_device_of(second) == 1;
        // Two full neighbours that were freed stay two.
        good = good && cudaFree(first) == cudaSuccess &&
               cudaFree(second) == cudaSuccess &&
               cudaMalloc(&first, 8193) == cudaErrorMemoryAllocation &&
               cudaSetDevice(2) == cudaErrorInvalidDevice;
        _exit(good ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
