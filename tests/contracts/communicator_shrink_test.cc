// The contract of Communicator: survivors go on in a smaller world.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "contracts/communicator_fixture.h"

namespace elasticdl::collective {
namespace {

constexpr size_t kLarge = 3 << 20;

class CommunicatorShrinkTest : public CommunicatorTest {};

// All operations work, and the sum is of all members.
std::string Use(Communicator& world, int rank, int size) {
  RANK_EXPECT(world.rank() == rank, world.rank());
  RANK_EXPECT(world.size() == size, world.size());
  for (const Operation& operation : AllOperations()) {
    for (const size_t bytes : {size_t{64}, kLarge}) {
      RANK_EXPECT_OK(RunOperation(operation.name, world, bytes, kLong));
    }
  }
  std::vector<float> data(kLarge / sizeof(float), static_cast<float>(1 + rank));
  RANK_EXPECT_OK(
      world.AllReduce(data.data(), data.size(), DataType::kFloat32, kLong));
  const auto sum = static_cast<float>(size * (size + 1) / 2);
  RANK_EXPECT(std::count(data.begin(), data.end(), sum) ==
              static_cast<int64_t>(data.size()));
  return "";
}

std::string UseUntilBroken(Communicator& world) {
  absl::Status status;
  while (status.ok()) status = RunOperation("AllReduce", world, kLarge, kLong);
  RANK_EXPECT(absl::IsAborted(status), status.ToString());
  return "";
}

// A rank that is told by the test which ranks of its world go on, and in which
// generation: "2 0,3,1". "end" ends it.
std::string ShrinkAsTold(const Backend& backend, int rank, int size,
                         Channel& test) {
  auto made = ConnectThrough(backend, MakeSpec(backend, 1, rank, size), test);
  RANK_EXPECT_OK(made.status());
  std::unique_ptr<Communicator> world = *std::move(made);
  while (true) {
    RANK_EXPECT_OK(test.Send("running"));
    const std::string error = UseUntilBroken(*world);
    if (!error.empty()) return error;
    RANK_EXPECT_OK(test.Send("broken"));
    const auto told = test.Receive();
    RANK_EXPECT_OK(told.status());
    if (*told == "end") return "";
    const std::vector<std::string> words = absl::StrSplit(*told, ' ');
    std::vector<int> ranks;
    for (const auto& text : absl::StrSplit(words.at(1), ',')) {
      ranks.push_back(std::stoi(std::string(text)));
    }
    RANK_EXPECT(world->can_shrink());
    auto smaller = world->Shrink(ranks, std::stoi(words.at(0)));
    RANK_EXPECT_OK(smaller.status());
    const auto own = std::find(ranks.begin(), ranks.end(), world->rank());
    world = *std::move(smaller);
    const std::string used = Use(*world, static_cast<int>(own - ranks.begin()),
                                 static_cast<int>(ranks.size()));
    if (!used.empty()) return used;
  }
}

void Expect(RankProcesses& ranks, int rank, const std::string& message) {
  const auto received = ranks.channel(rank).Receive();
  ASSERT_TRUE(received.ok()) << "rank " << rank << ": " << received.status();
  EXPECT_EQ(*received, message) << "rank " << rank;
}

// Two deaths, one after the other, at random moments of large operations.
TEST_P(CommunicatorShrinkTest, SurvivorsGoOnWithoutConnecting) {
  if (GetParam().name != "Shm") GTEST_SKIP() << "it cannot shrink";
  const unsigned seed = SharedSeed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  RankProcesses ranks(4, [&](int rank, Channel& test) {
    return ShrinkAsTold(GetParam(), rank, 4, test);
  });
  ASSERT_TRUE(ranks.Exchange(Ranks(4)).ok());
  // By rank in the newest world.
  std::vector<int> alive = Ranks(4);
  for (const int rank : alive) Expect(ranks, rank, "running");
  for (int generation = 2; generation < 4; ++generation) {
    const size_t victim = random() % alive.size();
    ranks.Signal(alive[victim], SIGKILL);
    EXPECT_EQ(ranks.Result(alive[victim]), "died of signal 9");
    std::vector<int> order;
    for (size_t i = 0; i < alive.size(); ++i) {
      if (i != victim) order.push_back(static_cast<int>(i));
    }
    std::shuffle(order.begin(), order.end(), random);
    std::vector<int> next;
    for (const int rank : order) {
      next.push_back(alive[static_cast<size_t>(rank)]);
    }
    for (const int rank : next) {
      Expect(ranks, rank, "broken");
      ASSERT_TRUE(
          ranks.channel(rank)
              .Send(absl::StrCat(generation, " ", absl::StrJoin(order, ",")))
              .ok());
    }
    alive = next;
    for (const int rank : alive) Expect(ranks, rank, "running");
  }
  ranks.Signal(alive[0], SIGKILL);
  Expect(ranks, alive[1], "broken");
  ASSERT_TRUE(ranks.channel(alive[1]).Send("end").ok());
  EXPECT_EQ(ranks.Result(alive[1]), "");
}

// Who goes on with one that has died is told so, whether it died before or
// after.
TEST_P(CommunicatorShrinkTest, ADeathInTheSmallerWorldIsSeen) {
  if (GetParam().name != "Shm") GTEST_SKIP() << "it cannot shrink";
  RankProcesses ranks(4, [&](int rank, Channel& test) -> std::string {
    auto world =
        ConnectThrough(GetParam(), MakeSpec(GetParam(), 1, rank, 4), test);
    RANK_EXPECT_OK(world.status());
    RANK_EXPECT_OK(test.Send("running"));
    RANK_EXPECT_OK(test.Receive().status());
    auto smaller = (*world)->Shrink({0, 2, 3}, 2);
    RANK_EXPECT_OK(smaller.status());
    (*world).reset();
    std::string error = UseUntilBroken(**smaller);
    if (!error.empty()) return error;
    const absl::Status status = (*smaller)->Barrier(kLong);
    RANK_EXPECT(BlamedRank(status) == 2, status.ToString());
    return "";
  });
  ASSERT_TRUE(ranks.Exchange(Ranks(4)).ok());
  for (const int rank : Ranks(4)) Expect(ranks, rank, "running");
  ranks.Signal(1, SIGKILL);
  EXPECT_EQ(ranks.Result(1), "died of signal 9");
  ASSERT_TRUE(ranks.channel(0).Send("shrink").ok());
  ranks.Signal(3, SIGKILL);
  EXPECT_EQ(ranks.Result(3), "died of signal 9");
  ASSERT_TRUE(ranks.channel(2).Send("shrink").ok());
  for (const int rank : {0, 2}) EXPECT_EQ(ranks.Result(rank), "");
}

TEST_P(CommunicatorShrinkTest, AStaleWorldHasNoPart) {
  RunWorld(3, [&](Communicator& world) -> std::string {
    if (!world.can_shrink()) {
      RANK_EXPECT(absl::IsUnimplemented(world.Shrink({0, 1}, 2).status()));
      return "";
    }
    RANK_EXPECT(GetParam().name == "Shm");
    RANK_EXPECT(absl::IsInvalidArgument(world.Shrink({0, 7}, 2).status()));
    const int out = (world.rank() + 1) % 3;
    RANK_EXPECT(absl::IsInvalidArgument(world.Shrink({out}, 2).status()));
    RANK_EXPECT_OK(world.Barrier(kLong));
    auto smaller = world.Shrink({2, 1, 0}, 2);
    RANK_EXPECT_OK(smaller.status());
    const absl::Status broken = world.Barrier(kLong);
    RANK_EXPECT(absl::IsAborted(broken), broken.ToString());
    // Somebody who was thought to be lost, and follows an older word.
    const absl::Status stale = world.Shrink({0, 1, 2}, 3).status();
    RANK_EXPECT(absl::IsAborted(stale), stale.ToString());
    return Use(**smaller, 2 - world.rank(), 3);
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorShrinkTest,
                         testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace elasticdl::collective
