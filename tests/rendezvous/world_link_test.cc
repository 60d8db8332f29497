#include "elasticdl/rendezvous/world_link.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "elasticdl/common/queue.h"

namespace elasticdl::rendezvous {
namespace {

constexpr absl::Duration kSoon = absl::Seconds(30);

// Two workers' links and the little of the master that they need.
class WorldLinkTest : public testing::Test {
 protected:
  struct Worker {
    Queue<v1::WorkerMessage> sent{std::numeric_limits<size_t>::max()};
    Queue<int64_t> connected{std::numeric_limits<size_t>::max()};
    std::unique_ptr<WorldLink> link;
  };
  void SetUp() override {
    for (int64_t id = 0; id < 2; ++id) {
      Worker& worker = workers_[id];
      WorldLink::Options options;
      options.worker_id = id;
      options.secret = "secret";
      worker.link = std::make_unique<WorldLink>(
          options,
          [&](v1::WorkerMessage message) {
            worker.sent.Push(std::move(message));
          },
          [&](int64_t generation) { worker.connected.Push(generation); });
    }
  }
  static v1::Prepare MakePrepare(int64_t generation, bool urgent) {
    v1::Prepare prepare;
    prepare.set_generation(generation);
    prepare.set_urgent(urgent);
    for (int64_t id = 0; id < 2; ++id) {
      v1::Member& member = *prepare.add_members();
      member.set_worker_id(id);
      member.set_host(collective::LocalHost());
    }
    return prepare;
  }
  static v1::MasterMessage ToMessage(const v1::Prepare& prepare) {
    v1::MasterMessage message;
    *message.mutable_prepare() = prepare;
    return message;
  }
  static v1::MasterMessage ToMessage(const v1::Offers& offers) {
    v1::MasterMessage message;
    *message.mutable_offers() = offers;
    return message;
  }
  // The next offer of each worker, for `generation`.
  v1::Offers CollectOffers(int64_t generation) {
    v1::Offers offers;
    offers.set_generation(generation);
    for (Worker& worker : workers_) {
      const auto message = worker.sent.Pop(kSoon);
      EXPECT_TRUE(message.has_value() && message->has_offer());
      if (!message.has_value()) continue;
      EXPECT_EQ(message->offer().generation(), generation);
      offers.add_offers(message->offer().offer());
    }
    return offers;
  }
  void Connect(int64_t generation, bool urgent) {
    for (Worker& worker : workers_) {
      worker.link->Hear(ToMessage(MakePrepare(generation, urgent)));
    }
    const v1::Offers offers = CollectOffers(generation);
    for (Worker& worker : workers_) worker.link->Hear(ToMessage(offers));
    for (Worker& worker : workers_) {
      const auto message = worker.sent.Pop(kSoon);
      ASSERT_TRUE(message.has_value() && message->has_connected());
      EXPECT_EQ(worker.connected.Pop(kSoon), generation);
    }
  }

  Worker workers_[2];
};

TEST_F(WorldLinkTest, MakesAWorldThatWorks) {
  Connect(1, /*urgent=*/true);
  auto first = workers_[0].link->Use(1);
  auto second = workers_[1].link->Use(1);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  float one = 1;
  float two = 2;
  Thread other("other", [&] {
    EXPECT_TRUE(
        second->AllReduce(&two, 1, collective::DataType::kFloat32, kSoon).ok());
  });
  EXPECT_TRUE(
      first->AllReduce(&one, 1, collective::DataType::kFloat32, kSoon).ok());
  other.Join();
  EXPECT_EQ(one, 3);
  EXPECT_EQ(two, 3);
}

TEST_F(WorldLinkTest, AnUrgentWorldBreaksOffTheOneInUse) {
  Connect(1, /*urgent=*/true);
  const auto communicator = workers_[0].link->Use(1);
  ASSERT_NE(communicator, nullptr);
  absl::Status status;
  // The other member never comes.
  Thread stuck("stuck", [&] { status = communicator->Barrier(kSoon); });
  workers_[0].link->Hear(ToMessage(MakePrepare(2, /*urgent=*/true)));
  stuck.Join();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
}

TEST_F(WorldLinkTest, APeacefulWorldLeavesTheOneInUseAlone) {
  Connect(1, /*urgent=*/true);
  const auto first = workers_[0].link->Use(1);
  const auto second = workers_[1].link->Use(1);
  Connect(2, /*urgent=*/false);
  Thread other("other", [&] { EXPECT_TRUE(second->Barrier(kSoon).ok()); });
  EXPECT_TRUE(first->Barrier(kSoon).ok());
  other.Join();
  EXPECT_NE(workers_[0].link->Use(2), nullptr);
}

TEST_F(WorldLinkTest, AWorldThatWasOvertakenCannotBeUsed) {
  Connect(1, /*urgent=*/true);
  workers_[0].link->Hear(ToMessage(MakePrepare(2, /*urgent=*/true)));
  EXPECT_EQ(workers_[0].link->Use(1), nullptr);
}

TEST_F(WorldLinkTest, SaysWhetherTheWorldInUseIsWorthWorkingFor) {
  Connect(1, /*urgent=*/true);
  rendezvous::WorldLink& link = *workers_[0].link;
  EXPECT_FALSE(link.IsUsable(1)) << "nobody uses it yet";
  ASSERT_NE(link.Use(1), nullptr);
  EXPECT_TRUE(link.IsUsable(1));
  link.Hear(ToMessage(MakePrepare(2, /*urgent=*/false)));
  EXPECT_TRUE(link.IsUsable(1));
  link.Hear(ToMessage(MakePrepare(3, /*urgent=*/true)));
  EXPECT_FALSE(link.IsUsable(1));

  rendezvous::WorldLink& other = *workers_[1].link;
  ASSERT_NE(other.Use(1), nullptr);
  v1::MasterMessage dissolve;
  dissolve.mutable_dissolve()->set_generation(1);
  other.Hear(dissolve);
  EXPECT_FALSE(other.IsUsable(1));
}

TEST_F(WorldLinkTest, ConnectingIsGivenUpForANewerWorld) {
  for (Worker& worker : workers_) {
    worker.link->Hear(ToMessage(MakePrepare(1, /*urgent=*/true)));
  }
  const v1::Offers offers = CollectOffers(1);
  // Only one of them connects; it would wait for the other.
  workers_[0].link->Hear(ToMessage(offers));
  Connect(2, /*urgent=*/true);
  EXPECT_NE(workers_[0].link->Use(2), nullptr);
}

TEST_F(WorldLinkTest, BadOffersAreReported) {
  workers_[0].link->Hear(ToMessage(MakePrepare(1, /*urgent=*/true)));
  ASSERT_TRUE(workers_[0].sent.Pop(kSoon).has_value());
  v1::Offers offers;
  offers.set_generation(1);
  offers.add_offers("garbage");
  offers.add_offers("more garbage");
  workers_[0].link->Hear(ToMessage(offers));
  const auto message = workers_[0].sent.Pop(kSoon);
  ASSERT_TRUE(message.has_value() && message->has_world_failed());
  EXPECT_EQ(message->world_failed().generation(), 1);
  EXPECT_FALSE(message->world_failed().reason().empty());
}

v1::MasterMessage MakeShrink(int64_t generation, int64_t from,
                             const std::vector<int64_t>& ids) {
  v1::MasterMessage message;
  v1::Prepare& prepare = *message.mutable_prepare();
  prepare.set_generation(generation);
  prepare.set_urgent(true);
  prepare.set_shrinks(from);
  for (const int64_t id : ids) {
    v1::Member& member = *prepare.add_members();
    member.set_worker_id(id);
    member.set_host(collective::LocalHost());
  }
  return message;
}

// Nothing but the master's word is needed, also when the world has been dropped
// before it.
TEST_F(WorldLinkTest, AWorldShrinksAtOnce) {
  Connect(1, /*urgent=*/true);
  const auto broken = workers_[0].link->Use(1);
  ASSERT_NE(workers_[1].link->Use(1), nullptr);
  ASSERT_TRUE(broken->can_shrink());
  for (const int64_t id : {0, 1}) {
    workers_[id].link->Hear(MakeShrink(2, 1, {1, 0}));
    EXPECT_TRUE(workers_[id].link->IsOvertaken(1));
  }
  EXPECT_TRUE(absl::IsAborted(broken->Barrier(kSoon)));
  workers_[1].link->Drop("broken here");
  const auto first = workers_[0].link->Use(2);
  const auto second = workers_[1].link->Use(2);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(first->rank(), 1);
  EXPECT_EQ(second->rank(), 0);
  for (Worker& worker : workers_) worker.link->ForgetFormer();
  Thread other("other", [&] { EXPECT_TRUE(second->Barrier(kSoon).ok()); });
  EXPECT_TRUE(first->Barrier(kSoon).ok());
  other.Join();
  // One of them goes on alone.
  workers_[0].link->Hear(MakeShrink(3, 2, {0}));
  const auto alone = workers_[0].link->Use(3);
  ASSERT_NE(alone, nullptr);
  EXPECT_EQ(alone->size(), 1);
  EXPECT_TRUE(alone->Barrier(kSoon).ok());
}

// A member leaves, so a world without it is prepared; meanwhile another one
// dies, and the survivors go on from the world that they are in.
TEST_F(WorldLinkTest, PreparingTheNextWorldKeepsWhatAShrinkNeeds) {
  Connect(1, /*urgent=*/true);
  ASSERT_NE(workers_[0].link->Use(1), nullptr);
  // The training thread sees the death before the master's word is heard.
  workers_[0].link->Drop("a member died");
  workers_[0].link->Hear(ToMessage(MakePrepare(2, /*urgent=*/false)));
  // Its offer shows that it has begun.
  const auto offer = workers_[0].sent.Pop(kSoon);
  ASSERT_TRUE(offer.has_value() && offer->has_offer());
  workers_[0].link->Hear(MakeShrink(3, 1, {0}));
  const auto alone = workers_[0].link->Use(3);
  ASSERT_NE(alone, nullptr);
  EXPECT_EQ(alone->size(), 1);
}

TEST_F(WorldLinkTest, WhoCannotShrinkSaysSo) {
  Connect(1, /*urgent=*/true);
  ASSERT_NE(workers_[0].link->Use(1), nullptr);
  // Of a world that this worker was never in.
  workers_[0].link->Hear(MakeShrink(3, 2, {0, 1}));
  EXPECT_EQ(workers_[0].link->Use(3), nullptr);
  const auto message = workers_[0].sent.Pop(kSoon);
  ASSERT_TRUE(message.has_value() && message->has_world_failed());
  EXPECT_EQ(message->world_failed().generation(), 3);
  // The next world is made as usual.
  workers_[1].link->Drop("broken");
  Connect(4, /*urgent=*/true);
  EXPECT_NE(workers_[0].link->Use(4), nullptr);
}

// The master that announced it is gone, and the other member may not have heard
// of it.
TEST_F(WorldLinkTest, WhatIsBrokenDoesNotShrink) {
  Connect(1, /*urgent=*/true);
  ASSERT_NE(workers_[0].link->Use(1), nullptr);
  workers_[0].link->Hear(MakeShrink(2, 1, {0, 1}));
  workers_[0].link->Break("the master is back");
  EXPECT_EQ(workers_[0].link->Use(2), nullptr);
}

TEST_F(WorldLinkTest, WhatIsDissolvedIsNotEntered) {
  Connect(1, /*urgent=*/true);
  ASSERT_NE(workers_[0].link->Use(1), nullptr);
  workers_[0].link->Hear(MakeShrink(2, 1, {0, 1}));
  v1::MasterMessage message;
  message.mutable_dissolve()->set_generation(2);
  workers_[0].link->Hear(message);
  EXPECT_EQ(workers_[0].link->Use(2), nullptr);
}

TEST_F(WorldLinkTest, AfterAbortAllNothingIsMade) {
  Connect(1, /*urgent=*/true);
  workers_[0].link->AbortAll("the job is over");
  EXPECT_EQ(workers_[0].link->Use(1), nullptr);
  workers_[0].link->Hear(ToMessage(MakePrepare(2, /*urgent=*/true)));
  EXPECT_FALSE(workers_[0].sent.Pop(absl::Milliseconds(50)).has_value());
}

}  // namespace
}  // namespace elasticdl::rendezvous
