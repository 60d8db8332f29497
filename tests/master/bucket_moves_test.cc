// The master's moves with real servers (without sockets): messages are late or
// lost, servers and the master die between any two of them, workers push and
// repeat pushes. In the end every bucket has one owner, and every push is in
// every bucket once.
#include "bucket_moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/ps/bucket_mover.h"
#include "ps/exact_model.h"
#include "ps/model.h"

namespace elasticdl::master {
namespace {

using ps::BucketMap;

constexpr int kMostServers = 5;

// ---- the machine alone ----

class BucketMovesTest : public testing::Test {
 protected:
  bool CanBegin() {
    return moves_.CanBegin(
        now_, [this](int server) { return away_.count(server) == 0; });
  }
  v1::ServerMoved Answer() const {
    v1::ServerMoved moved;
    moved.set_map_version(moves_.step().map().version());
    moved.set_forget_before(moves_.step().forget_before());
    return moved;
  }
  // All do the open step.
  void DoStep(absl::Duration time = absl::Milliseconds(5)) {
    now_ += time;
    for (int server = 0; server < moves_.participants(); ++server) {
      EXPECT_EQ(moves_.Done(now_, server, Answer()),
                server == moves_.participants() - 1);
    }
  }
  void Rest() { now_ = std::max(now_, moves_.next()); }
  int Settle() {
    int steps = 0;
    for (; moves_.moving(); ++steps) {
      Rest();
      EXPECT_TRUE(CanBegin());
      moves_.Begin(now_);
      DoStep();
      if (steps > 2000) break;
    }
    return steps;
  }
  std::map<int, int> Shares() const {
    std::map<int, int> shares;
    for (const int owner : moves_.map().owners()) ++shares[owner];
    return shares;
  }

  absl::Time now_ = absl::UnixEpoch();
  BucketMoves moves_{2};
  std::set<int> away_;
};

TEST_F(BucketMovesTest, IsSettledAtFirst) {
  EXPECT_FALSE(moves_.moving());
  EXPECT_EQ(moves_.servers(), 2);
  EXPECT_EQ(moves_.next(), absl::InfiniteFuture());
  EXPECT_EQ(moves_.map(), BucketMap::Even(2));
  moves_.SetTarget(2);
  EXPECT_FALSE(CanBegin());
}

TEST_F(BucketMovesTest, WaitsForNewServers) {
  away_ = {2};
  moves_.SetTarget(3);
  EXPECT_EQ(moves_.servers(), 3);
  EXPECT_TRUE(moves_.moving());
  EXPECT_FALSE(CanBegin());
  EXPECT_FALSE(moves_.Holds(2));
  away_.clear();
  EXPECT_TRUE(CanBegin());
  EXPECT_EQ(moves_.map().version(), 1);
}

TEST_F(BucketMovesTest, ServersGetEvenShares) {
  moves_.SetTarget(3);
  EXPECT_LT(Settle(), 40);
  EXPECT_THAT(Shares(),
              testing::ElementsAre(testing::Pair(0, 342), testing::Pair(1, 341),
                                   testing::Pair(2, 341)));
  moves_.SetTarget(1);
  Settle();
  EXPECT_THAT(Shares(), testing::ElementsAre(testing::Pair(0, ps::kBuckets)));
  EXPECT_EQ(moves_.servers(), 1);
}

// A server that is in the map without a bucket would count versions from 0.
TEST_F(BucketMovesTest, EveryNewServerGetsABucketWithTheFirstMap) {
  moves_.SetTarget(7);
  moves_.Begin(now_);
  EXPECT_EQ(moves_.map().servers(), 7);
  EXPECT_EQ(moves_.step().moves_size(), 5);
  EXPECT_THAT(Shares(), testing::SizeIs(7));
  // They have not said yet that they have it; the others must not lose it.
  EXPECT_FALSE(moves_.Holds(6));
  EXPECT_TRUE(moves_.Holds(0));
  EXPECT_FALSE(moves_.Done(now_, 6, Answer()));
  EXPECT_TRUE(moves_.Holds(6));
  EXPECT_FALSE(moves_.Holds(5));
}

TEST_F(BucketMovesTest, LongStepsGetFewerBuckets) {
  moves_.SetTarget(3);
  std::vector<int> sizes;
  for (const int ms : {1, 1, 1, 15, 30, 30, 30, 30, 1}) {
    Rest();
    moves_.Begin(now_);
    sizes.push_back(moves_.step().moves_size());
    DoStep(absl::Milliseconds(ms));
  }
  EXPECT_THAT(sizes, testing::ElementsAre(1, 2, 4, 8, 8, 4, 2, 1, 1));
}

TEST_F(BucketMovesTest, WorkersTrainBetweenSteps) {
  moves_.SetTarget(3);
  moves_.Begin(now_);
  EXPECT_EQ(moves_.next(), absl::InfiniteFuture());
  DoStep(absl::Milliseconds(300));
  EXPECT_FALSE(CanBegin());
  EXPECT_EQ(moves_.next(), now_ + absl::Milliseconds(300));
}

TEST_F(BucketMovesTest, OnlyAnswersToTheOpenStepCount) {
  EXPECT_FALSE(moves_.Done(now_, 0, Answer()));
  moves_.SetTarget(3);
  moves_.Begin(now_);
  v1::ServerMoved old = Answer();
  old.set_map_version(1);
  for (int server = 0; server < 3; ++server) {
    EXPECT_FALSE(moves_.Done(now_, server, old));
  }
  EXPECT_FALSE(moves_.Done(now_, 7, Answer()));
  EXPECT_FALSE(moves_.Done(now_, 0, Answer()));
  EXPECT_FALSE(moves_.Done(now_, 0, Answer())) << "said again";
  EXPECT_FALSE(moves_.Done(now_, 1, Answer()));
  EXPECT_TRUE(moves_.Done(now_, 2, Answer()));
}

TEST_F(BucketMovesTest, ServersThatLeaveStayUntilTheirBucketsAreDropped) {
  moves_.SetTarget(1);
  while (moves_.map().servers() == 2) {
    Rest();
    moves_.Begin(now_);
    EXPECT_EQ(moves_.servers(), 2);
    EXPECT_TRUE(moves_.Holds(1));
    DoStep();
  }
  EXPECT_TRUE(moves_.moving());
  EXPECT_EQ(moves_.servers(), 2);
  EXPECT_FALSE(moves_.Holds(1));
  Rest();
  moves_.Begin(now_);
  EXPECT_EQ(moves_.step().moves_size(), 0);
  EXPECT_EQ(moves_.step().forget_before(), moves_.map().version() + 1);
  DoStep();
  EXPECT_FALSE(moves_.moving());
  EXPECT_EQ(moves_.servers(), 1);
}

TEST_F(BucketMovesTest, AnotherNumberIsAskedForOnTheWay) {
  moves_.SetTarget(3);
  for (int i = 0; i < 4; ++i) {
    Rest();
    moves_.Begin(now_);
    DoStep();
  }
  moves_.SetTarget(2);
  Settle();
  EXPECT_THAT(Shares(), testing::ElementsAre(testing::Pair(0, 512),
                                             testing::Pair(1, 512)));
  EXPECT_EQ(moves_.servers(), 2);
}

TEST_F(BucketMovesTest, AnotherMasterGoesOn) {
  moves_.SetTarget(3);
  moves_.Begin(now_);
  const v1::BucketState state = moves_.State();
  moves_ = BucketMoves(2);
  moves_.Resume(state);
  EXPECT_TRUE(moves_.open());
  EXPECT_EQ(moves_.map().version(), 2);
  EXPECT_EQ(moves_.servers(), 3);
  DoStep();
  Settle();
  EXPECT_THAT(Shares(), testing::SizeIs(3));
  const v1::BucketState settled = moves_.State();
  moves_ = BucketMoves(2);
  moves_.Resume(settled);
  EXPECT_FALSE(moves_.moving());
  EXPECT_EQ(moves_.servers(), 3);
}

// ---- with servers ----

class Job {
 public:
  explicit Job(uint64_t seed) : random_(seed) {
    for (int i = 0; i < kMostServers; ++i) {
      servers_.emplace_back(i);
      lives_.push_back({});
    }
    ps::Begin(definition_, moves_.map(), servers_);
    journal_ = moves_.State();
    FollowServers();
  }

  void Act() {
    now_ += absl::Milliseconds(Random(8));
    const uint64_t action = Random(100);
    if (action < 25) {
      PushSome();
    } else if (action < 31) {
      StartPush();
    } else if (action < 33) {
      Scale(1 + static_cast<int>(Random(kMostServers)));
    } else if (action < 70) {
      GoOnMoving();
    } else if (action < 73) {
      Crash(AnyServer());
    } else if (action < 75) {
      LoseLog(AnyServer());
    } else if (action < 76) {
      RestartMaster();
    } else if (action < 79 && !pushes_.empty()) {
      // A worker dies; another computes the minibatch again.
      Push& push = pushes_[Random(pushes_.size())];
      push.acknowledged.clear();
      push.map = Random(2) == 0 ? BucketMap::Even(2) : moves_.map();
    } else {
      Hello(AnyServer());
    }
  }

  void Finish() {
    for (int i = 0; i < 200000 && (!pushes_.empty() || moves_.moving()); ++i) {
      now_ += absl::Milliseconds(1);
      Hello(AnyServer());
      GoOnMoving();
      PushSome();
    }
    ASSERT_TRUE(pushes_.empty());
    ASSERT_FALSE(moves_.moving());
    EXPECT_EQ(moves_.map().servers(), moves_.target());
    for (const ps::TestServer& server : servers_) {
      if (server.id >= moves_.map().servers()) continue;
      EXPECT_TRUE(server.state->awaited().empty());
      EXPECT_TRUE(server.state->leaving().empty());
      EXPECT_EQ(server.state->map(), moves_.map());
      ps::ExpectExact(definition_, moves_.map(), next_, server);
    }
  }

  int steps() const { return steps_; }
  int scales() const { return scales_; }

 private:
  struct Push {
    int64_t number;
    BucketMap map;
    std::set<int> acknowledged;
  };
  struct Life {
    // Its process runs, and has a stream to the master.
    bool up = false;
    bool attached = false;
    std::optional<v1::MoveBuckets> step;
    // Pushes that were committed when its stream broke.
    int64_t least_version = 0;
  };
  struct Told {
    int server;
    v1::ServerMoved moved;
  };

  uint64_t Random(uint64_t below) { return random_() % below; }
  int AnyServer() { return static_cast<int>(Random(kMostServers)); }
  Life& life(int server) { return lives_[static_cast<size_t>(server)]; }
  ps::TestServer& at(int server) {
    return servers_[static_cast<size_t>(server)];
  }

  // ---- the master ----

  void Scale(int servers) {
    ++scales_;
    moves_.SetTarget(servers);
    journal_ = moves_.State();
    FollowServers();
  }
  // Pods come and go.
  void FollowServers() {
    for (int server = 0; server < kMostServers; ++server) {
      const bool wanted = server < moves_.servers();
      if (wanted == life(server).up) continue;
      life(server) = {};
      life(server).up = wanted;
    }
  }
  void BeginStep() {
    const auto is_there = [this](int server) { return life(server).attached; };
    if (!moves_.CanBegin(now_, is_there)) return;
    ++steps_;
    moves_.Begin(now_);
    journal_ = moves_.State();
    for (int server = 0; server < moves_.participants(); ++server) {
      if (life(server).attached) life(server).step = moves_.step();
    }
  }
  void Hear() {
    if (told_.empty()) return;
    const Told told = told_.front();
    told_.pop_front();
    if (!life(told.server).attached) return;
    ASSERT_EQ(told.moved.error(), "");
    if (!moves_.Done(now_, told.server, told.moved)) return;
    journal_ = moves_.State();
    FollowServers();
  }
  void RestartMaster() {
    moves_ = BucketMoves(2);
    moves_.Resume(journal_);
    told_.clear();
    for (int server = 0; server < kMostServers; ++server) Detach(server);
    FollowServers();
  }
  void Detach(int server) {
    life(server).attached = false;
    life(server).least_version = moves_.Holds(server) ? committed_ : 0;
  }
  void Hello(int server) {
    Life& one = life(server);
    if (!one.up || one.attached) return;
    one.attached = true;
    if (moves_.Holds(server)) {
      ASSERT_GE(at(server).state->version(), one.least_version)
          << "server " << server << " would be taken for one without its log";
    }
    if (moves_.open() && server < moves_.participants()) {
      one.step = moves_.step();
    }
  }

  // ---- servers ----

  void Crash(int server) {
    if (!life(server).up) return;
    Detach(server);
    life(server).step.reset();
    at(server).Restart();
  }
  // What a server that holds nothing has logged may be lost, unless it has
  // begun to take pushes.
  void LoseLog(int server) {
    const ps::ServerState& state = *at(server).state;
    const bool takes_pushes = server < moves_.map().servers() &&
                              state.awaited().empty() && state.defined();
    if (moves_.Holds(server) || takes_pushes) return;
    if (life(server).up) Detach(server);
    life(server).step.reset();
    at(server).log.clear();
    at(server).state = at(server).Fresh();
  }
  void GoOnMoving() {
    if (Random(4) == 0) return BeginStep();
    if (Random(3) == 0) return Hear();
    const int server = AnyServer();
    Life& one = life(server);
    if (!one.up || !one.step.has_value()) return;
    const ps::ServerState& state = *at(server).state;
    const auto action =
        ps::NextMoveAction(server, *one.step,
                           {state.defined(), state.map().version(),
                            state.awaited(), state.leaving()});
    ASSERT_TRUE(action.ok()) << action.status();
    Do(server, *action);
  }
  void Do(int server, const ps::MoveAction& action) {
    using Kind = ps::MoveAction::Kind;
    const v1::MoveBuckets& step = *life(server).step;
    v1::PsEntry entry;
    std::string payload;
    switch (action.kind) {
      case Kind::kForget:
        entry.mutable_forget()->set_bucket(action.bucket);
        entry.mutable_forget()->set_map_version(action.map_version);
        break;
      case Kind::kDefine:
        ASSERT_TRUE(at(action.from).state->defined());
        *entry.mutable_definition() = definition_;
        break;
      case Kind::kMap:
        *entry.mutable_map() = step.map();
        break;
      case Kind::kFetch: {
        v1::PsFetch fetch;
        fetch.set_bucket(action.bucket);
        fetch.set_map_version(step.map().version());
        v1::PsReply reply;
        ps::Buffer bytes;
        const absl::Status fetched =
            at(action.from).state->Fetch(fetch, reply, bytes);
        // It has not heard of the map.
        if (absl::IsUnavailable(fetched)) return;
        ASSERT_TRUE(fetched.ok()) << fetched;
        entry = reply.entry();
        payload = std::string(bytes.view());
        break;
      }
      case Kind::kDone: {
        v1::ServerMoved moved;
        moved.set_map_version(step.map().version());
        moved.set_forget_before(step.forget_before());
        if (life(server).attached) told_.push_back({server, moved});
        life(server).step.reset();
        return;
      }
    }
    const absl::Status accepted = at(server).Accept(entry, payload);
    ASSERT_TRUE(accepted.ok() || absl::IsAlreadyExists(accepted)) << accepted;
  }

  // ---- workers ----

  void StartPush() {
    if (pushes_.size() < 4) pushes_.push_back({next_++, moves_.map(), {}});
  }
  // Some worker sends a part of its minibatch to some server.
  void PushSome() {
    if (pushes_.empty()) return;
    const size_t which = Random(pushes_.size());
    Push& push = pushes_[which];
    const int to =
        static_cast<int>(Random(static_cast<uint64_t>(push.map.servers())));
    const ps::EntryBytes part = ps::PartOf(
        ps::ExactGradient(definition_, push.number), definition_, push.map, to);
    // Gone for good: the others tell of the new map.
    if (!life(to).up) return;
    const absl::Status status = at(to).Accept(part.entry, part.payload);
    if (absl::IsFailedPrecondition(status)) {
      ASSERT_GT(at(to).state->map().version(), push.map.version());
      push.map = at(to).state->map();
      push.acknowledged.clear();
      return;
    }
    if (!status.ok() && !absl::IsAlreadyExists(status)) {
      ASSERT_TRUE(absl::IsUnavailable(status) || absl::IsNotFound(status))
          << status;
      return;
    }
    push.acknowledged.insert(to);
    if (static_cast<int>(push.acknowledged.size()) < push.map.servers()) return;
    ++committed_;
    pushes_.erase(pushes_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  const v1::PsDefinition definition_ = ps::ExactDefinition();
  std::mt19937_64 random_;
  absl::Time now_ = absl::UnixEpoch();
  BucketMoves moves_{2};
  v1::BucketState journal_;
  std::vector<ps::TestServer> servers_;
  std::vector<Life> lives_;
  std::deque<Told> told_;
  std::vector<Push> pushes_;
  int64_t next_ = 0;
  int64_t committed_ = 0;
  int steps_ = 0;
  int scales_ = 0;
};

TEST(BucketMovesWithServersTest, RandomSchedules) {
  int steps = 0;
  int scales = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Job job(seed);
    for (int i = 0; i < 500; ++i) {
      job.Act();
      if (testing::Test::HasFailure()) return;
    }
    job.Finish();
    if (testing::Test::HasFailure()) return;
    steps += job.steps();
    scales += job.scales();
  }
  std::cout << steps << " steps of " << scales << " moves\n";
  EXPECT_GT(steps, 500);
}

}  // namespace
}  // namespace elasticdl::master
