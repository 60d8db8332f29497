// What NCCL does when members die, stop or never come, in each phase of a
// world's life: on the doubles, under each schedule of the streams, and on real
// GPUs where there are some.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "contracts/communicator_fixture.h"
#include "contracts/gpu_libraries.h"
#include "elasticdl/collective/device_communicator.h"
#include "elasticdl/collective/nccl.h"
#include "elasticdl/common/failpoint.h"

namespace elasticdl::collective {
namespace {

constexpr size_t kBytes = 3 << 20;

struct Victim {
  int rank;
  std::string failpoint;
};

class NcclChaosTest : public CommunicatorTest {
 protected:
  // The victims die at their failpoints; those that are left form the next
  // world and use it.
  void Survive(const std::vector<Victim>& victims, int size,
               const std::string& variables = "");
};

// The real NCCL does it when it likes.
#define SKIP_ON_REAL_GPUS(does)                                     \
  if (WantsRealGpus()) {                                            \
    GTEST_SKIP() << "only the double of NCCL can be told to " does; \
  }

// "A=b" for the doubles.
void Set(const std::string& variable) {
  if (variable.empty()) return;
  const size_t equals = variable.find('=');
  setenv(variable.substr(0, equals).c_str(),
         variable.substr(equals + 1).c_str(), 1);
}

// Until it fails.
absl::Status Train(Communicator& world) {
  absl::Status status;
  while (status.ok()) status = RunOperation("AllReduce", world, kBytes, kLong);
  return status;
}

void NcclChaosTest::Survive(const std::vector<Victim>& victims, int size,
                            const std::string& variable) {
  const Backend backend = GetParam();
  std::vector<int> survivors;
  for (int rank = 0; rank < size; ++rank) {
    bool dies = false;
    for (const Victim& victim : victims) dies = dies || victim.rank == rank;
    if (!dies) survivors.push_back(rank);
  }
  RankProcesses ranks(size, [&](int rank, Channel& test) -> std::string {
    Set(variable);
    for (const Victim& victim : victims) {
      if (victim.rank == rank) RANK_EXPECT_OK(InitFailpoints(victim.failpoint));
    }
    {
      auto world =
          ConnectThrough(backend, MakeSpec(backend, 1, rank, size), test);
      const absl::Status status = world.ok() ? Train(**world) : world.status();
      RANK_EXPECT(absl::IsAborted(status), status.ToString());
    }
    int next = -1;
    for (size_t i = 0; i < survivors.size(); ++i) {
      if (survivors[i] == rank) next = static_cast<int>(i);
    }
    RANK_EXPECT(next >= 0, "is still alive");
    const int left = static_cast<int>(survivors.size());
    auto world =
        ConnectThrough(backend, MakeSpec(backend, 2, next, left), test);
    RANK_EXPECT_OK(world.status());
    std::vector<float> data(10000, 1);
    RANK_EXPECT_OK((*world)->AllReduce(data.data(), data.size(),
                                       DataType::kFloat32, kLong));
    RANK_EXPECT(data.back() == static_cast<float>(left), data.back());
    return "";
  });
  ASSERT_TRUE(ranks.Exchange(Ranks(size)).ok());
  for (const Victim& victim : victims) {
    EXPECT_EQ(ranks.Result(victim.rank), "died of signal 9");
  }
  const absl::Status exchanged = ranks.Exchange(survivors);
  EXPECT_TRUE(exchanged.ok()) << exchanged;
  for (const int rank : survivors) EXPECT_EQ(ranks.Result(rank), "") << rank;
}

TEST_P(NcclChaosTest, DeathBeforeInit) {
  const int size = Members(3);
  for (const int victim : {0, size - 1}) {
    Survive({{victim, "collective.nccl.init=kill"}}, size);
  }
}

TEST_P(NcclChaosTest, DeathAfterInit) {
  const int size = Members(3);
  for (const int victim : {0, size - 1}) {
    Survive({{victim, "collective.nccl.ready=kill"}}, size);
  }
}

TEST_P(NcclChaosTest, DeathInTheMiddleOfASum) {
  const int size = Members(3);
  for (const int victim : {0, size - 1}) {
    Survive({{victim, "collective.all_reduce=kill@5"}}, size);
  }
}

// NCCL notices the death, too.
TEST_P(NcclChaosTest, DeathThatNcclReports) {
  SKIP_ON_REAL_GPUS("report a death");
  Survive({{1, "collective.all_reduce=kill@5"}}, 3,
          "TEST_NCCL_PEER_DEATH=remote_error");
}

// Aborts wait for each other: all who live must call it.
TEST_P(NcclChaosTest, AbortsThatWaitForEachOther) {
  SKIP_ON_REAL_GPUS("wait for all aborts");
  Survive({{1, "collective.all_reduce=kill@5"}}, 4,
          "TEST_NCCL_ABORT=collective");
}

TEST_P(NcclChaosTest, DeathWhileTheOthersAbort) {
  const int size = Members(4);
  if (size < 3) GTEST_SKIP() << "two of the members die; there are " << size;
  Survive(
      {{1, "collective.all_reduce=kill@5"}, {2, "collective.nccl.abort=kill"}},
      size, "TEST_NCCL_ABORT=collective");
}

// The member that is stopped never aborts, so the abort of the others hangs.
TEST_P(NcclChaosTest, HungAbortEndsTheProcess) {
  SKIP_ON_REAL_GPUS("hang in an abort");
  Backend backend = GetParam();
  backend.abort_patience = absl::Milliseconds(200);
  RankProcesses ranks(2, [&](int rank, Channel& test) -> std::string {
    Set("TEST_NCCL_ABORT=collective");
    auto world = ConnectThrough(backend, MakeSpec(backend, 1, rank, 2), test);
    RANK_EXPECT_OK(world.status());
    RANK_EXPECT_OK(test.Send("ready"));
    RANK_EXPECT_OK(test.Receive().status());
    const absl::Status status =
        RunOperation("AllReduce", **world, kBytes, absl::Milliseconds(100));
    RANK_EXPECT(absl::IsDeadlineExceeded(status), status.ToString());
    // Of a member that is well: nobody else will say what stalls.
    RANK_EXPECT(IsNcclFailure(status), status.ToString());
    world->reset();
    return "came back";
  });
  ASSERT_TRUE(ranks.Exchange({0, 1}).ok());
  for (const int rank : {0, 1}) {
    ASSERT_EQ("ready", ranks.channel(rank).Receive().value_or("gone"));
  }
  ranks.Signal(1, SIGSTOP);
  ASSERT_TRUE(ranks.channel(0).Send("go").ok());
  EXPECT_EQ(ranks.Result(0), "died of signal 9");
}

// A member that aborts leaves its part of the sum, and that of the other ends
// with nonsense. The other one's watch has not had time to read of the abort.
TEST_P(NcclChaosTest, AbortOfAnotherMemberIsNoSum) {
  const Backend backend = GetParam();
  RankProcesses ranks(2, [&](int rank, Channel& test) -> std::string {
    auto world = ConnectThrough(backend, MakeSpec(backend, 1, rank, 2), test);
    RANK_EXPECT_OK(world.status());
    RANK_EXPECT_OK(RunOperation("AllReduce", **world, kBytes, kLong));
    if (rank == 0) {
      RANK_EXPECT_OK(test.Receive().status());
      (*world)->Abort("broken here");
      return "";
    }
    RANK_EXPECT_OK(InitFailpoints("collective.watch=delay(500)"));
    RANK_EXPECT_OK(test.Send("ready"));
    const absl::Status status =
        RunOperation("AllReduce", **world, kBytes, kLong);
    RANK_EXPECT(absl::IsAborted(status), status.ToString());
    return "";
  });
  ASSERT_TRUE(ranks.Exchange({0, 1}).ok());
  ASSERT_EQ("ready", ranks.channel(1).Receive().value_or("gone"));
  ASSERT_TRUE(ranks.channel(0).Send("go").ok());
  for (const int rank : {0, 1}) EXPECT_EQ(ranks.Result(rank), "");
}

// The same, but somebody kills the one that is stopped, as the master does.
TEST_P(NcclChaosTest, StoppedMemberIsKilledInTime) {
  const Backend backend = GetParam();
  const int size = Members(3);
  std::vector<int> others = Ranks(size);
  others.erase(others.begin() + 1);
  RankProcesses ranks(size, [&](int rank, Channel& test) -> std::string {
    Set("TEST_NCCL_ABORT=collective");
    {
      auto world =
          ConnectThrough(backend, MakeSpec(backend, 1, rank, size), test);
      RANK_EXPECT_OK(world.status());
      RANK_EXPECT_OK(test.Send("ready"));
      RANK_EXPECT_OK(test.Receive().status());
      const absl::Status status =
          RunOperation("AllReduce", **world, kBytes, absl::Milliseconds(100));
      RANK_EXPECT(absl::IsDeadlineExceeded(status) || absl::IsAborted(status),
                  status.ToString());
      RANK_EXPECT_OK(test.Send("failed"));
    }
    auto world =
        ConnectThrough(backend, MakeSpec(backend, 2, rank / 2, size - 1), test);
    RANK_EXPECT_OK(world.status());
    return RunOperation("AllReduce", **world, kBytes, kLong).ToString() == "OK"
               ? ""
               : "no sum";
  });
  ASSERT_TRUE(ranks.Exchange(Ranks(size)).ok());
  for (const int rank : Ranks(size)) {
    ASSERT_EQ("ready", ranks.channel(rank).Receive().value_or("gone"));
  }
  ranks.Signal(1, SIGSTOP);
  for (const int rank : others) {
    ASSERT_TRUE(ranks.channel(rank).Send("go").ok());
    ASSERT_EQ("failed", ranks.channel(rank).Receive().value_or("gone"));
  }
  ranks.Signal(1, SIGKILL);
  ASSERT_TRUE(ranks.Exchange(others).ok());
  for (const int rank : others) EXPECT_EQ(ranks.Result(rank), "");
}

TEST_P(NcclChaosTest, NcclThatNeverConnects) {
  SKIP_ON_REAL_GPUS("never connect");
  RankProcesses ranks(2, [&](int rank, Channel& test) -> std::string {
    Set("TEST_NCCL_INIT=hang");
    auto connector = Begin(GetParam(), MakeSpec(GetParam(), 1, rank, 2));
    RANK_EXPECT_OK(connector.status());
    const auto offers = ExchangeWithAll(test, (*connector)->offer());
    RANK_EXPECT_OK(offers.status());
    const auto world = (*connector)->Connect(*offers, absl::Milliseconds(300));
    RANK_EXPECT(absl::IsDeadlineExceeded(world.status()) ||
                    absl::IsAborted(world.status()),
                world.status().ToString());
    return "";
  });
  ASSERT_TRUE(ranks.Exchange({0, 1}).ok());
  for (const int rank : {0, 1}) EXPECT_EQ(ranks.Result(rank), "");
}

// The master must know that it was NCCL: of whoever sees it itself.
TEST_P(NcclChaosTest, ASumThatNcclCannotConnectIsItsFailure) {
  SKIP_ON_REAL_GPUS("fail in a sum");
  RankProcesses ranks(2, [&](int rank, Channel& test) -> std::string {
    Set("TEST_NCCL_SUM=error");
    auto world =
        ConnectThrough(GetParam(), MakeSpec(GetParam(), 1, rank, 2), test);
    RANK_EXPECT_OK(world.status());
    const absl::Status status = Train(**world);
    RANK_EXPECT(absl::IsAborted(status), status.ToString());
    return IsNcclFailure(status) ? "NCCL" : "the other";
  });
  ASSERT_TRUE(ranks.Exchange({0, 1}).ok());
  const std::string first = ranks.Result(0);
  const std::string second = ranks.Result(1);
  EXPECT_TRUE(first == "NCCL" || first == "the other") << first;
  EXPECT_TRUE(second == "NCCL" || second == "the other") << second;
  EXPECT_TRUE(first == "NCCL" || second == "NCCL");
}

// NCCL would refuse; the world does without.
TEST_P(NcclChaosTest, MembersThatShareAGpuDoWithout) {
  RankProcesses ranks(2, [&](int rank, Channel& test) -> std::string {
    Backend backend = GetParam();
    backend.first_device = -rank;  // All have device 0.
    auto connector = Begin(backend, MakeSpec(backend, 1, rank, 2));
    RANK_EXPECT_OK(connector.status());
    const auto offers = ExchangeWithAll(test, (*connector)->offer());
    RANK_EXPECT_OK(offers.status());
    const auto world = (*connector)->Connect(*offers, kLong);
    RANK_EXPECT_OK(world.status());
    RANK_EXPECT((*world)->device() == nullptr);
    RANK_EXPECT_OK((*world)->Barrier(kLong));
    return "";
  });
  ASSERT_TRUE(ranks.Exchange({0, 1}).ok());
  for (const int rank : {0, 1}) EXPECT_EQ(ranks.Result(rank), "");
}

std::vector<Backend> NcclBackends() {
  std::vector<Backend> nccl;
  for (const Backend& backend : AllBackends()) {
    if (backend.option == "nccl") nccl.push_back(backend);
  }
  return nccl;
}
INSTANTIATE_TEST_SUITE_P(Schedules, NcclChaosTest,
                         testing::ValuesIn(NcclBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace elasticdl::collective
