// The contract of Communicator: deaths, aborts, deadlines, strangers.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "contracts/communicator_fixture.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::collective {
namespace {

constexpr size_t kSmall = 64;
// Several chunks in every backend.
constexpr size_t kLarge = 3 << 20;

// Runs the operation until it fails, which it must with ABORTED, blaming one of
// `blamed` (-1 = nobody) if there are any.
std::string ExpectAborted(Communicator& world, const std::string& operation,
                          size_t bytes, const std::vector<int>& blamed = {}) {
  absl::Status status;
  // Any number of calls may succeed before the news comes; the test ends a rank
  // that never hears it.
  while (status.ok()) status = RunOperation(operation, world, bytes, kLong);
  RANK_EXPECT(absl::IsAborted(status), status.ToString());
  RANK_EXPECT(blamed.empty() || std::count(blamed.begin(), blamed.end(),
                                           BlamedRank(status)) > 0,
              BlamedRank(status), ": ", status.ToString());
  // From now on every call fails at once.
  for (const Operation& other : AllOperations()) {
    const absl::Status later = RunOperation(other.name, world, kSmall, kLong);
    RANK_EXPECT(absl::IsAborted(later), other.name, ": ", later.ToString());
  }
  return "";
}

// The survivors of generation 1 form generation 2 and use it.
std::string FormNextWorld(const Backend& backend, int rank, int size,
                          Channel& test) {
  auto world = ConnectThrough(backend, MakeSpec(backend, 2, rank, size), test);
  RANK_EXPECT_OK(world.status());
  std::vector<float> data(10000, 1);
  RANK_EXPECT_OK(
      (*world)->AllReduce(data.data(), data.size(), DataType::kFloat32, kLong));
  RANK_EXPECT(data.front() == static_cast<float>(size));
  RANK_EXPECT(data.back() == static_cast<float>(size));
  return "";
}

// By the survivors of a death. Empty = anybody: who only sees another survivor
// give up blames that one.
std::vector<int> WhoMayBeBlamed(const Backend& backend, int victim, int size) {
  if (backend.name == "Shm") return {victim};
  if (size > 2) return {};
  // Gloo's own errors may come first, which do not say who it was.
  if (backend.name == "Gloo") return {victim, -1};
  return {victim};
}

void ExpectMessages(RankProcesses& ranks, const std::vector<int>& from,
                    const std::string& message) {
  for (const int rank : from) {
    const absl::StatusOr<std::string> received = ranks.channel(rank).Receive();
    ASSERT_TRUE(received.ok()) << "rank " << rank << ": " << received.status();
    ASSERT_EQ(*received, message) << "rank " << rank;
  }
}

class CommunicatorFaultTest : public CommunicatorTest {
 protected:
  struct Death {
    std::string operation;
    // Kills the victim inside, or before, it ("" = while it does nothing).
    std::string failpoint;
    int victim;
    size_t bytes;
  };
  // One member dies; the others notice and form the next world.
  void SurviveDeath(const Death& death, int size);
  void StopAndExpectDeadline(const std::string& operation);
};

void CommunicatorFaultTest::SurviveDeath(const Death& death, int size) {
  SCOPED_TRACE(absl::StrCat(death.operation, " at ", death.failpoint,
                            ", victim ", death.victim, " of ", size, ", ",
                            death.bytes, " bytes"));
  const Backend backend = GetParam();
  RankProcesses ranks(size, [&](int rank, Channel& test) -> std::string {
    if (rank == death.victim) {
      RANK_EXPECT_OK(InitFailpoints(death.failpoint));
    }
    auto world =
        ConnectThrough(backend, MakeSpec(backend, 1, rank, size), test);
    if (!absl::StartsWith(death.failpoint, "collective.connect")) {
      RANK_EXPECT_OK(world.status());
      if (death.failpoint.empty()) {
        RANK_EXPECT_OK(test.Send("connected"));
        if (rank == death.victim) RANK_EXPECT_OK(test.Receive().status());
      }
      const std::string error =
          ExpectAborted(**world, death.operation, death.bytes,
                        WhoMayBeBlamed(backend, death.victim, size));
      if (!error.empty()) return error;
    } else {
      RANK_EXPECT(absl::IsAborted(world.status()), world.status().ToString());
    }
    RANK_EXPECT(rank != death.victim, "is still alive");
    return FormNextWorld(backend, rank < death.victim ? rank : rank - 1,
                         size - 1, test);
  });
  ASSERT_TRUE(ranks.Exchange(Ranks(size)).ok());
  if (death.failpoint.empty()) {
    ExpectMessages(ranks, Ranks(size), "connected");
    ranks.Signal(death.victim, SIGKILL);
  }
  EXPECT_EQ(ranks.Result(death.victim), "died of signal 9");
  std::vector<int> survivors = Ranks(size);
  survivors.erase(survivors.begin() + death.victim);
  const absl::Status exchanged = ranks.Exchange(survivors);
  EXPECT_TRUE(exchanged.ok()) << exchanged;
  for (const int rank : survivors) {
    EXPECT_EQ(ranks.Result(rank), "") << "rank " << rank;
  }
}

TEST_P(CommunicatorFaultTest, DeathInEachOperation) {
  const int size = Members(4);
  for (const Operation& operation : AllOperations()) {
    for (const int victim : {0, size - 1}) {
      SurviveDeath(
          {operation.name, operation.failpoint + "=kill", victim, kSmall},
          size);
      // The third visit: in the middle of an operation of several chunks.
      SurviveDeath(
          {operation.name, operation.failpoint + "=kill@3", victim, kLarge},
          size);
    }
  }
}

TEST_P(CommunicatorFaultTest, DeathOfOneOfTwo) {
  for (const int victim : {0, 1}) {
    SurviveDeath({"AllReduce", "collective.all_reduce=kill@2", victim, kLarge},
                 2);
  }
}

TEST_P(CommunicatorFaultTest, DeathOutsideOfOperations) {
  for (const Operation& operation : AllOperations()) {
    const int size = Members(3);
    for (const int victim : {0, size - 1}) {
      SurviveDeath({operation.name, "", victim, kLarge}, size);
    }
  }
}

TEST_P(CommunicatorFaultTest, DeathWhileConnecting) {
  const int size = Members(4);
  for (int victim = 0; victim < size; ++victim) {
    SurviveDeath({"", "collective.connect=kill", victim, kSmall}, size);
  }
}

// All but one die at once.
TEST_P(CommunicatorFaultTest, OneOfFourIsLeft) {
  const Backend backend = GetParam();
  const int size = Members(4);
  const int left = size / 2;
  RankProcesses ranks(size, [&](int rank, Channel& test) -> std::string {
    auto world =
        ConnectThrough(backend, MakeSpec(backend, 1, rank, size), test);
    RANK_EXPECT_OK(world.status());
    RANK_EXPECT_OK(test.Send("connected"));
    if (rank != left) RANK_EXPECT_OK(test.Receive().status());
    const std::string error = ExpectAborted(**world, "AllReduce", kLarge);
    if (!error.empty()) return error;
    return FormNextWorld(backend, 0, 1, test);
  });
  ASSERT_TRUE(ranks.Exchange(Ranks(size)).ok());
  ExpectMessages(ranks, Ranks(size), "connected");
  for (const int rank : Ranks(size)) {
    if (rank != left) ranks.Signal(rank, SIGKILL);
  }
  ASSERT_TRUE(ranks.Exchange({left}).ok());
  EXPECT_EQ(ranks.Result(left), "");
}

// A rank of the test below: "again" asks for a place in the next world, and
// "running" says that it works.
std::string TrainUntilToldToEnd(const Backend& backend, Channel& test) {
  while (true) {
    RANK_EXPECT_OK(test.Send("again"));
    const auto place = test.Receive();
    RANK_EXPECT_OK(place.status());
    if (*place == "end") return "";
    const std::vector<std::string> numbers = absl::StrSplit(*place, ' ');
    const int rank = std::stoi(numbers.at(0));
    const int size = std::stoi(numbers.at(1));
    const auto world = ConnectThrough(
        backend, MakeSpec(backend, std::stoi(numbers.at(2)), rank, size), test);
    if (!world.ok()) continue;
    absl::Status status;
    for (int i = 0; status.ok(); ++i) {
      if (i == 4) RANK_EXPECT_OK(test.Send("running"));
      std::vector<float> data(i % 2 == 0 ? 8 : kLarge / sizeof(float), 1);
      status = (*world)->AllReduce(data.data(), data.size(), DataType::kFloat32,
                                   kLong);
      const auto right = static_cast<size_t>(
          std::count(data.begin(), data.end(), static_cast<float>(size)));
      RANK_EXPECT(!status.ok() || right == data.size(), "wrong sum");
    }
    RANK_EXPECT(absl::IsAborted(status), status.ToString());
  }
}

// They are killed while small and large all-reduces are running; whoever is
// left forms the next world. A death can damage MPI: then one more world is
// needed.
TEST_P(CommunicatorFaultTest, KilledOneByOneUntilOneIsLeft) {
  const int size = Members(8);
  const unsigned seed = SharedSeed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  RankProcesses ranks(size, [&](int, Channel& test) {
    return TrainUntilToldToEnd(GetParam(), test);
  });
  std::vector<int> alive = Ranks(size);
  // Those that have said "again".
  std::set<int> waiting;
  const auto next = [&](int rank) {
    const auto message = ranks.channel(rank).Receive();
    EXPECT_TRUE(message.ok()) << "rank " << rank << ": " << message.status();
    if (message.value_or("") == "again") waiting.insert(rank);
    return message.value_or("gone");
  };
  int64_t worlds = 0;
  for (; alive.size() > 1 && worlds < 3 * size; ++worlds) {
    for (size_t i = 0; i < alive.size(); ++i) {
      while (waiting.count(alive[i]) == 0) ASSERT_NE(next(alive[i]), "gone");
      const std::string place =
          absl::StrCat(i, " ", alive.size(), " ", worlds + 1);
      ASSERT_TRUE(ranks.channel(alive[i]).Send(place).ok());
    }
    waiting.clear();
    ASSERT_TRUE(ranks.Exchange(alive).ok());
    bool all_run = true;
    for (const int rank : alive) all_run = next(rank) == "running" && all_run;
    if (!all_run) continue;
    const size_t victim = random() % alive.size();
    ranks.Signal(alive[victim], SIGKILL);
    EXPECT_EQ(ranks.Result(alive[victim]), "died of signal 9");
    alive.erase(alive.begin() + static_cast<ptrdiff_t>(victim));
  }
  ASSERT_EQ(alive.size(), 1u);
  if (GetParam().option != "mpi") {
    EXPECT_EQ(worlds, size - 1);
  }
  while (waiting.count(alive[0]) == 0) ASSERT_NE(next(alive[0]), "gone");
  ASSERT_TRUE(ranks.channel(alive[0]).Send("end").ok());
  EXPECT_EQ(ranks.Result(alive[0]), "");
  if (worlds > size - 1) std::cout << "worlds: " << worlds << "\n";
}

TEST_P(CommunicatorFaultTest, AbortByAnotherThreadEndsEachOperation) {
  for (const Operation& operation : AllOperations()) {
    SCOPED_TRACE(operation.name);
    for (const size_t bytes : {kSmall, kLarge}) {
      RunWorld(Members(3), [&](Communicator& world) -> std::string {
        Thread aborter;
        if (world.rank() == 1) {
          aborter = Thread("aborter", [&world] {
            world.Abort("enough of this");
            world.Abort("again");
          });
        }
        std::string error = ExpectAborted(world, operation.name, bytes);
        if (error.empty() && world.rank() == 1) {
          const absl::Status status = world.Barrier(kLong);
          RANK_EXPECT(status.message() == "enough of this", status.ToString());
        }
        return error;
      });
    }
  }
}

// Nobody else comes, so the call is certainly waiting or about to.
TEST_P(CommunicatorFaultTest, AbortWhileOthersAreAway) {
  const int size = Members(3);
  RankProcesses ranks(size, [&](int rank, Channel& test) -> std::string {
    auto world =
        ConnectThrough(GetParam(), MakeSpec(GetParam(), 1, rank, size), test);
    RANK_EXPECT_OK(world.status());
    if (rank == 0) {
      Thread aborter("aborter", [&] { (*world)->Abort("enough"); });
      // A worker's gradients are still good then.
      const absl::Status status =
          RunOperation("AllReduce", **world, kLarge, kLong);
      RANK_EXPECT(GetParam().name != "Shm" || LeftDataAlone(status),
                  status.ToString());
      const std::string error = ExpectAborted(**world, "AllReduce", kLarge);
      RANK_EXPECT_OK(test.Send("aborted"));
      return error;
    }
    RANK_EXPECT_OK(test.Receive().status());
    return ExpectAborted(**world, "AllReduce", kLarge);
  });
  ASSERT_TRUE(ranks.Exchange(Ranks(size)).ok());
  ExpectMessages(ranks, {0}, "aborted");
  for (int rank = 1; rank < size; ++rank) {
    ASSERT_TRUE(ranks.channel(rank).Send("go").ok());
  }
  for (const int rank : Ranks(size)) EXPECT_EQ(ranks.Result(rank), "");
}

TEST_P(CommunicatorFaultTest, WhoLeavesEndsTheWorldForTheOthers) {
  RunWorld(Members(3), [](Communicator& world) -> std::string {
    RANK_EXPECT_OK(world.Barrier(kLong));
    if (world.rank() == 1) return "";
    return ExpectAborted(world, "AllReduce", kLarge);
  });
}

void CommunicatorFaultTest::StopAndExpectDeadline(
    const std::string& operation) {
  SCOPED_TRACE(operation);
  const int size = Members(3);
  const int last = size - 1;
  RankProcesses ranks(size, [&](int rank, Channel& test) -> std::string {
    auto world =
        ConnectThrough(GetParam(), MakeSpec(GetParam(), 1, rank, size), test);
    RANK_EXPECT_OK(world.status());
    RANK_EXPECT_OK(test.Send("ready"));
    RANK_EXPECT_OK(test.Receive().status());
    if (rank == last) return ExpectAborted(**world, operation, kLarge);
    const absl::Status status =
        RunOperation(operation, **world, kLarge, absl::Milliseconds(100));
    // Who sees the end of the world before its own deadline is told so.
    RANK_EXPECT(absl::IsDeadlineExceeded(status) || absl::IsAborted(status),
                status.ToString());
    RANK_EXPECT_OK(test.Send(absl::IsAborted(status) ? "aborted" : "late"));
    const absl::Status later = (*world)->Barrier(kLong);
    RANK_EXPECT(absl::IsAborted(later), later.ToString());
    return "";
  });
  ASSERT_TRUE(ranks.Exchange(Ranks(size)).ok());
  ExpectMessages(ranks, Ranks(size), "ready");
  ranks.Signal(last, SIGSTOP);
  for (const int rank : Ranks(size)) {
    ASSERT_TRUE(ranks.channel(rank).Send("go").ok());
  }
  int late = 0;
  for (const int rank : Ranks(last)) {
    if (ranks.channel(rank).Receive().value() == "late") ++late;
  }
  EXPECT_GE(late, 1);
  for (const int rank : Ranks(last)) EXPECT_EQ(ranks.Result(rank), "");
  ranks.Signal(last, SIGCONT);
  EXPECT_EQ(ranks.Result(last), "");
}

TEST_P(CommunicatorFaultTest, DeadlineWhenAMemberIsStopped) {
  for (const Operation& operation : AllOperations()) {
    StopAndExpectDeadline(operation.name);
  }
}

TEST_P(CommunicatorFaultTest, ConnectHasADeadline) {
  const int size = Members(3);
  RankProcesses ranks(size, [&](int rank, Channel& test) -> std::string {
    const WorldSpec spec = MakeSpec(GetParam(), 1, rank, size);
    auto connector = Begin(GetParam(), spec);
    RANK_EXPECT_OK(connector.status());
    auto offers = ExchangeWithAll(test, (*connector)->offer());
    RANK_EXPECT_OK(offers.status());
    // Rank 1 does not come.
    if (rank != 1) {
      auto world = (*connector)->Connect(*offers, absl::Milliseconds(100));
      RANK_EXPECT(absl::IsDeadlineExceeded(world.status()) ||
                      absl::IsAborted(world.status()),
                  world.status().ToString());
    }
    RANK_EXPECT_OK(test.Send("done"));
    RANK_EXPECT_OK(test.Receive().status());
    return "";
  });
  ASSERT_TRUE(ranks.Exchange(Ranks(size)).ok());
  ExpectMessages(ranks, Ranks(size), "done");
  for (const int rank : Ranks(size)) {
    ASSERT_TRUE(ranks.channel(rank).Send("end").ok());
  }
  for (const int rank : Ranks(size)) EXPECT_EQ(ranks.Result(rank), "");
}

TEST_P(CommunicatorFaultTest, AbortEndsConnect) {
  RankProcesses ranks(2, [&](int rank, Channel& test) -> std::string {
    const WorldSpec spec = MakeSpec(GetParam(), 1, rank, 2);
    auto connector = Begin(GetParam(), spec);
    RANK_EXPECT_OK(connector.status());
    auto offers = ExchangeWithAll(test, (*connector)->offer());
    RANK_EXPECT_OK(offers.status());
    if (rank == 0) {
      Thread aborter("aborter", [&] { (*connector)->Abort("no more"); });
      auto world = (*connector)->Connect(*offers, kLong);
      RANK_EXPECT(absl::IsAborted(world.status()), world.status().ToString());
      RANK_EXPECT(world.status().message() == "no more",
                  world.status().ToString());
      RANK_EXPECT_OK(test.Send("done"));
    }
    RANK_EXPECT_OK(test.Receive().status());
    return "";
  });
  ASSERT_TRUE(ranks.Exchange(Ranks(2)).ok());
  ExpectMessages(ranks, {0}, "done");
  for (const int rank : Ranks(2)) {
    ASSERT_TRUE(ranks.channel(rank).Send("end").ok());
    EXPECT_EQ(ranks.Result(rank), "");
  }
}

std::string RefuseWrongOffers(const Backend& backend) {
  const WorldSpec own = MakeSpec(backend, 7, 0, 2);
  const WorldSpec other = MakeSpec(backend, 7, 1, 2);
  WorldSpec stale = other;
  stale.generation = 6;
  WorldSpec stranger = other;
  stranger.secret = "guessed";

  struct Case {
    WorldSpec spec;
    absl::StatusCode code;
    std::string says;
  };
  const std::vector<Case> cases = {
      {stale, absl::StatusCode::kFailedPrecondition, "generation 6"},
      {stranger, absl::StatusCode::kPermissionDenied, "secret"},
      {own, absl::StatusCode::kInvalidArgument, "made by rank 0"}};
  for (const Case& wrong : cases) {
    auto connector = Begin(backend, own);
    RANK_EXPECT_OK(connector.status());
    auto theirs = Begin(backend, wrong.spec);
    RANK_EXPECT_OK(theirs.status());
    const absl::Status status =
        (*connector)
            ->Connect({(*connector)->offer(), (*theirs)->offer()}, kLong)
            .status();
    RANK_EXPECT(status.code() == wrong.code, status.ToString());
    RANK_EXPECT(absl::StrContains(status.message(), wrong.says),
                status.ToString());
  }
  return "";
}

// One process: no connection comes about.
TEST_P(CommunicatorFaultTest, OffersThatDoNotBelongAreRefused) {
  RankProcesses process(
      1, [&](int, Channel&) { return RefuseWrongOffers(GetParam()); });
  EXPECT_EQ(process.Result(0), "");
}

std::string RefuseGarbage(const Backend& backend) {
  const WorldSpec own = MakeSpec(backend, 7, 0, 2);
  const std::string good =
      (*Begin(backend, MakeSpec(backend, 7, 1, 2)))->offer();
  std::string changed = good;
  changed[changed.size() / 2] ^= 1;
  const std::vector<std::string> garbage = {"",
                                            "x",
                                            "EDLC1",
                                            std::string(1000, '\xff'),
                                            good.substr(0, good.size() - 1),
                                            good + "x",
                                            good.substr(0, 20),
                                            changed};
  for (const std::string& bad : garbage) {
    auto connector = Begin(backend, own);
    RANK_EXPECT_OK(connector.status());
    const absl::Status status =
        (*connector)->Connect({(*connector)->offer(), bad}, kLong).status();
    RANK_EXPECT(
        absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status),
        status.ToString());
  }
  auto connector = Begin(backend, own);
  RANK_EXPECT_OK(connector.status());
  const absl::Status alone =
      (*connector)->Connect({(*connector)->offer()}, kLong).status();
  RANK_EXPECT(absl::IsInvalidArgument(alone), alone.ToString());
  return "";
}

TEST_P(CommunicatorFaultTest, GarbageOffersAreRefused) {
  RankProcesses process(
      1, [&](int, Channel&) { return RefuseGarbage(GetParam()); });
  EXPECT_EQ(process.Result(0), "");
}

TEST_P(CommunicatorFaultTest, BroadcastRootMustBeAMember) {
  RunWorld(2, [](Communicator& world) -> std::string {
    char byte = 0;
    for (const int root : {-1, 2}) {
      const absl::Status status = world.Broadcast(&byte, 1, root, kLong);
      RANK_EXPECT(absl::IsInvalidArgument(status), status.ToString());
    }
    return "";
  });
}

// Shared memory has no name, so that a killed member leaves nothing behind. The
// folder itself is not looked at: others use it, too.
TEST_P(CommunicatorFaultTest, NoFilesInSharedMemory) {
  if (GetParam().option == "mpi") GTEST_SKIP() << "MPI has files there";
  // The doubles have none.
  if (GetParam().name == "Nccl") GTEST_SKIP() << "NCCL has files there";
  RunWorld(Members(3), [](Communicator&) -> std::string {
    const absl::StatusOr<std::string> maps = ReadFile("/proc/self/maps");
    RANK_EXPECT_OK(maps.status());
    RANK_EXPECT(!absl::StrContains(*maps, "/dev/shm/"));
    return "";
  });
}

// Members may be threads of one process.
TEST_P(CommunicatorFaultTest, MembersInOneProcess) {
  const int size = Members(3);
  RankProcesses process(1, [&](int, Channel&) -> std::string {
    std::vector<std::unique_ptr<Connector>> connectors;
    std::vector<std::string> offers;
    for (int rank = 0; rank < size; ++rank) {
      auto connector = Begin(GetParam(), MakeSpec(GetParam(), 1, rank, size));
      RANK_EXPECT_OK(connector.status());
      offers.push_back((*connector)->offer());
      connectors.push_back(std::move(*connector));
    }
    std::vector<std::string> errors(static_cast<size_t>(size));
    {
      std::vector<Thread> threads;
      for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back("member", [&, rank] {
          errors[rank] = [&]() -> std::string {
            auto world = connectors[rank]->Connect(offers, kLong);
            RANK_EXPECT_OK(world.status());
            std::vector<float> data(100000, 1);
            RANK_EXPECT_OK((*world)->AllReduce(data.data(), data.size(),
                                               DataType::kFloat32, kLong));
            RANK_EXPECT(data[99999] == static_cast<float>(size));
            return "";
          }();
        });
      }
    }
    return absl::StrJoin(errors, "");
  });
  EXPECT_EQ(process.Result(0), "");
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorFaultTest,
                         testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace elasticdl::collective
