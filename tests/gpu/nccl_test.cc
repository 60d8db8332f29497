// The double of libnccl: does it behave, and misbehave, as NCCL does?
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "contracts/communicator_fixture.h"
#include "contracts/rank_processes.h"
#include "test_cudart.h"

namespace elasticdl::collective {
namespace {

constexpr size_t kCount = 700000;  // Several slots.

ncclResult_t Poll(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    if (asked != ncclSuccess) return asked;
    sched_yield();
  }
  return state;
}

// One rank: a device, memory, a stream, a communicator.
struct Member {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  float* data = nullptr;
  float* pinned = nullptr;

  // Returns the state of the new communicator.
  ncclResult_t Init(const std::string& id, int rank, int size, int device) {
    setenv("TEST_CUDART_DEVICES", "8", 0);
    cudaSetDevice(device);
    void* memory = nullptr;
    cudaMalloc(&memory, kCount * sizeof(float));
    data = static_cast<float*>(memory);
    cudaHostAlloc(&memory, kCount * sizeof(float), 0);
    pinned = static_cast<float*>(memory);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    ncclUniqueId unique = {};
    id.copy(unique.internal, sizeof(unique.internal));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclCommInitRankConfig(&comm, size, unique, rank, &config);
  }
  void Fill(float value) {
    for (size_t i = 0; i < kCount; ++i) pinned[i] = value;
    cudaMemcpyAsync(data, pinned, kCount * sizeof(float),
                    cudaMemcpyHostToDevice, stream);
    cudaStreamSynchronize(stream);
  }
  ncclResult_t AllReduce() {
    return ncclAllReduce(data, data, kCount, ncclFloat32, ncclSum, comm,
                         stream);
  }
  // Of the last element.
  float Result() {
    cudaMemcpyAsync(pinned, data, kCount * sizeof(float),
                    cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    return pinned[kCount - 1];
  }
};

// Rank 0 makes the id; the test hands it to all.
absl::StatusOr<std::string> ShareId(int rank, Channel& test) {
  std::string own;
  if (rank == 0) {
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) == ncclSuccess) {
      own.assign(id.internal, sizeof(id.internal));
    }
  }
  auto all = ExchangeWithAll(test, own);
  if (!all.ok()) return all.status();
  return all->front();
}

std::vector<int> Ranks(int count) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(i);
  return ranks;
}

// Runs `body` in `size` ranks that know an id.
using Body =
    std::function<std::string(int rank, const std::string& id, Channel& test)>;
RankProcesses::Body WithId(const Body& body) {
  return [body](int rank, Channel& test) -> std::string {
    test_cudart_set_schedule(kTestCudartAllLazy);
    const auto id = ShareId(rank, test);
    RANK_EXPECT_OK(id.status());
    return body(rank, *id, test);
  };
}

void RunAll(int size, const Body& body) {
  RankProcesses ranks(size, WithId(body));
  ASSERT_TRUE(ranks.Exchange(Ranks(size)).ok());
  for (int rank = 0; rank < size; ++rank) EXPECT_EQ(ranks.Result(rank), "");
}

TEST(NcclDoubleTest, AddsUpAfterItWasPolled) {
  RunAll(3, [](int rank, const std::string& id, Channel&) -> std::string {
    Member member;
    RANK_EXPECT(member.Init(id, rank, 3, rank) == ncclInProgress);
    RANK_EXPECT(Poll(member.comm) == ncclSuccess);
    member.Fill(static_cast<float>(rank + 1));
    RANK_EXPECT(member.AllReduce() == ncclInProgress);
    // It is not on the stream yet, so an event does not wait for it.
    cudaEventRecord(member.event, member.stream);
    cudaEventSynchronize(member.event);
    RANK_EXPECT(member.AllReduce() == ncclInvalidArgument);
    RANK_EXPECT(Poll(member.comm) == ncclSuccess);
    const float sum = member.Result();
    RANK_EXPECT(sum == 6, sum);
    RANK_EXPECT(ncclCommFinalize(member.comm) == ncclInProgress);
    RANK_EXPECT(Poll(member.comm) == ncclSuccess);
    RANK_EXPECT(ncclCommDestroy(member.comm) == ncclSuccess);
    return "";
  });
}

TEST(NcclDoubleTest, GathersAndBroadcasts) {
  RunAll(2, [](int rank, const std::string& id, Channel&) -> std::string {
    Member member;
    member.Init(id, rank, 2, rank);
    RANK_EXPECT(Poll(member.comm) == ncclSuccess);
    member.Fill(static_cast<float>(rank + 1));
    ncclAllGather(member.data + rank * 10, member.data, 10, ncclFloat32,
                  member.comm, member.stream);
    RANK_EXPECT(Poll(member.comm) == ncclSuccess);
    member.Result();
    RANK_EXPECT(member.pinned[9] == 1 && member.pinned[10] == 2);
    ncclBroadcast(member.data, member.data, kCount, ncclFloat32, 1, member.comm,
                  member.stream);
    RANK_EXPECT(Poll(member.comm) == ncclSuccess);
    RANK_EXPECT(member.Result() == 2);
    RANK_EXPECT(ncclCommAbort(member.comm) == ncclSuccess);
    return "";
  });
}

// What a survivor of two sees after the other was killed.
void KillOneOfTwo(const char* tells, ncclResult_t state) {
  RankProcesses ranks(
      2, WithId([&](int rank, const std::string& id,
                    Channel& test) -> std::string {
        if (tells != nullptr) setenv("TEST_NCCL_PEER_DEATH", tells, 1);
        Member member;
        member.Init(id, rank, 2, rank);
        RANK_EXPECT(Poll(member.comm) == ncclSuccess);
        RANK_EXPECT_OK(test.Send("ready"));
        RANK_EXPECT_OK(test.Receive().status());
        member.Fill(1);
        member.AllReduce();
        ncclResult_t seen = ncclSuccess;
        ncclCommGetAsyncError(member.comm, &seen);
        cudaEventRecord(member.event, member.stream);
        // It never ends, however often one asks.
        for (int i = 0; i < 2000 || seen != state; ++i) {
          RANK_EXPECT(cudaEventQuery(member.event) == cudaErrorNotReady);
          RANK_EXPECT(ncclCommGetAsyncError(member.comm, &seen) == ncclSuccess);
          sched_yield();
        }
        RANK_EXPECT(ncclCommAbort(member.comm) == ncclSuccess);
        RANK_EXPECT(cudaEventSynchronize(member.event) == cudaSuccess);
        return "";
      }));
  ASSERT_TRUE(ranks.Exchange({0, 1}).ok());
  for (const int rank : {0, 1}) {
    ASSERT_EQ("ready", ranks.channel(rank).Receive().value_or("gone"));
  }
  ranks.Signal(1, SIGKILL);
  EXPECT_EQ(ranks.Result(1), "died of signal 9");
  ASSERT_TRUE(ranks.channel(0).Send("go").ok());
  EXPECT_EQ(ranks.Result(0), "");
}

TEST(NcclDoubleTest, DeathOfAPeerIsNotReported) {
  KillOneOfTwo(nullptr, ncclSuccess);
}

TEST(NcclDoubleTest, DeathOfAPeerIsReportedIfAsked) {
  KillOneOfTwo("remote_error", ncclRemoteError);
}

TEST(NcclDoubleTest, InitWaitsForAllUntilAborted) {
  RunAll(1, [](int rank, const std::string& id, Channel&) -> std::string {
    Member member;
    RANK_EXPECT(member.Init(id, rank, 2, rank) == ncclInProgress);
    ncclResult_t state = ncclSuccess;
    ncclCommGetAsyncError(member.comm, &state);
    RANK_EXPECT(state == ncclInProgress);
    RANK_EXPECT(ncclCommAbort(member.comm) == ncclSuccess);
    return "";
  });
}

TEST(NcclDoubleTest, RefusesTwoRanksOnOneGpu) {
  RunAll(2, [](int rank, const std::string& id, Channel&) -> std::string {
    Member member;
    member.Init(id, rank, 2, 0);
    RANK_EXPECT(Poll(member.comm) == ncclInvalidUsage);
    RANK_EXPECT(ncclCommAbort(member.comm) == ncclSuccess);
    return "";
  });
}

TEST(NcclDoubleTest, RefusesWrongMemoryAndStreams) {
  RunAll(1, [](int rank, const std::string& id, Channel&) -> std::string {
    Member member;
    member.Init(id, rank, 1, 0);
    RANK_EXPECT(Poll(member.comm) == ncclSuccess);
    RANK_EXPECT(ncclAllReduce(member.pinned, member.pinned, 4, ncclFloat32,
                              ncclSum, member.comm,
                              member.stream) == ncclInvalidArgument);
    cudaSetDevice(1);
    cudaStream_t other = nullptr;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    RANK_EXPECT(ncclAllReduce(member.data, member.data, 4, ncclFloat32, ncclSum,
                              member.comm, other) == ncclInvalidArgument);
    return "";
  });
}

TEST(NcclDoubleTest, DifferentOperationsEndTheProcess) {
  RankProcesses ranks(
      2, WithId([&](int rank, const std::string& id, Channel&) -> std::string {
        Member member;
        member.Init(id, rank, 2, rank);
        RANK_EXPECT(Poll(member.comm) == ncclSuccess);
        ncclAllReduce(member.data, member.data, static_cast<size_t>(10 + rank),
                      ncclFloat32, ncclSum, member.comm, member.stream);
        Poll(member.comm);
        cudaStreamSynchronize(member.stream);
        return "nothing happened";
      }));
  ASSERT_TRUE(ranks.Exchange({0, 1}).ok());
  const std::string first = ranks.Result(0);
  const std::string second = ranks.Result(1);
  EXPECT_TRUE(first == "died of signal 6" || second == "died of signal 6")
      << first << ", " << second;
}

TEST(NcclDoubleTest, TwoThreadsInOneCommunicatorEndTheProcess) {
  RankProcesses ranks(
      2, WithId([&](int rank, const std::string& id,
                    Channel& test) -> std::string {
        Member member;
        member.Init(id, rank, 2, rank);
        RANK_EXPECT(Poll(member.comm) == ncclSuccess);
        if (rank == 1) return test.Receive().ok() ? "" : "no end";
        // Aborts wait for the other rank, which never does.
        setenv("TEST_NCCL_ABORT", "collective", 1);
        std::thread aborter([&] { ncclCommAbort(member.comm); });
        ncclResult_t state = ncclSuccess;
        for (;;) ncclCommGetAsyncError(member.comm, &state);
      }));
  ASSERT_TRUE(ranks.Exchange({0, 1}).ok());
  EXPECT_EQ(ranks.Result(0), "died of signal 6");
  ASSERT_TRUE(ranks.channel(1).Send("end").ok());
  EXPECT_EQ(ranks.Result(1), "");
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
TEST(NcclDoubleTest, ShrinksAroundADeadRank) {
  RankProcesses ranks(
      3, WithId([&](int rank, const std::string& id,
                    Channel& test) -> std::string {
        Member member;
        member.Init(id, rank, 3, rank);
        RANK_EXPECT(Poll(member.comm) == ncclSuccess);
        RANK_EXPECT_OK(test.Send("ready"));
        RANK_EXPECT_OK(test.Receive().status());
        member.Fill(1);
        member.AllReduce();
        RANK_EXPECT(Poll(member.comm) == ncclSuccess);
        int dead = 1;
        ncclComm_t next = nullptr;
        RANK_EXPECT(ncclCommShrink(member.comm, &dead, 1, &next, nullptr,
                                   NCCL_SHRINK_ABORT) == ncclInProgress);
        RANK_EXPECT(Poll(next) == ncclSuccess);
        RANK_EXPECT(ncclCommAbort(member.comm) == ncclSuccess);
        member.comm = next;
        int count = 0;
        int now = -1;
        ncclCommCount(next, &count);
        ncclCommUserRank(next, &now);
        RANK_EXPECT(count == 2 && now == (rank == 0 ? 0 : 1));
        member.Fill(2);
        member.AllReduce();
        RANK_EXPECT(Poll(next) == ncclSuccess);
        RANK_EXPECT(member.Result() == 4);
        return "";
      }));
  ASSERT_TRUE(ranks.Exchange(Ranks(3)).ok());
  for (const int rank : Ranks(3)) {
    ASSERT_EQ("ready", ranks.channel(rank).Receive().value_or("gone"));
  }
  ranks.Signal(1, SIGKILL);
  EXPECT_EQ(ranks.Result(1), "died of signal 9");
  for (const int rank : {0, 2}) {
    ASSERT_TRUE(ranks.channel(rank).Send("go").ok());
  }
  for (const int rank : {0, 2}) EXPECT_EQ(ranks.Result(rank), "");
}
#endif

}  // namespace
}  // namespace elasticdl::collective
