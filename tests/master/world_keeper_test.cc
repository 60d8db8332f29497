// What the members of a world are told, and what they say about it.
#include "world_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/collective/topology.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Case = v1::MasterMessage::MessageCase;
using Kind = rendezvous::MembershipDecision::Kind;

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

class Outbox : public WorkerPort {
 public:
  void Send(const std::vector<ConnectionId>& connections,
            v1::MasterMessage message) override {
    for (const ConnectionId connection : connections) {
      sent[connection].push_back(message.message_case());
      if (message.has_offers()) offers[connection] = message.offers();
    }
  }
  void SendToServer(int, v1::MasterMessage) override {}
  void Close(ConnectionId, const absl::Status&) override {}
  void KillWorker(int64_t, const std::string&) override {}

  std::map<ConnectionId, std::vector<Case>> sent;
  std::map<ConnectionId, v1::Offers> offers;
};

class WorldKeeperTest : public ::testing::Test {
 protected:
  WorldKeeperTest() {
    for (int64_t id = 0; id < 2; ++id) {
      Worker worker;
      worker.id = id;
      worker.ready = true;
      registry_.Add(10 + id, worker);
    }
  }
  // Worker 0 trains alone, in the world 1.
  void Form() {
    auto& membership = world_.membership();
    membership.Ready(At(0), 0, "host");
    membership.Offered(At(0), 0, 1, "offer");
    membership.Connected(At(0), 0, 1);
    for (const auto& decision : membership.Level(At(0), 0, 1)) {
      if (decision.kind != Kind::kActive) continue;
      change_ = world_.Activate(decision, absl::Seconds(3), /*step=*/7,
                                /*lineage=*/1);
    }
    ASSERT_EQ(world_.generation(), 1);
  }
  std::vector<Case> Sent(int64_t id) {
    return std::exchange(outbox_.sent[10 + id], {});
  }

  WorkerRegistry registry_;
  Outbox outbox_;
  WorldKeeper world_{rendezvous::MembershipOptions(), "auto", registry_,
                     outbox_};
  WorldChange change_;
  bool expect_nccl_ = true;
};

TEST_F(WorldKeeperTest, KnowsItsMembers) {
  EXPECT_EQ(world_.generation(), 0);
  EXPECT_FALSE(world_.IsMember(0));
  Form();
  EXPECT_TRUE(world_.IsMember(0));
  EXPECT_FALSE(world_.IsMember(1));
  EXPECT_EQ(world_.size(), 1u);
  EXPECT_THAT(change_.members, ElementsAre(0));
  EXPECT_EQ(change_.step, 7);
  EXPECT_GE(change_.pause, absl::Seconds(3));
  EXPECT_EQ(world_.last_world().generation(), 1);
  EXPECT_EQ(world_.last_world().lineage(), 1);
  EXPECT_THAT(world_.last_world().members(), ElementsAre(0));
}

TEST_F(WorldKeeperTest, AnnouncesToThoseThatAreConcerned) {
  rendezvous::MembershipDecision decision;
  decision.kind = Kind::kOffers;
  decision.generation = 1;
  decision.to = {1, 5};
  EXPECT_TRUE(world_.Announce(decision));
  decision.kind = Kind::kSwitch;
  EXPECT_TRUE(world_.Announce(decision));
  decision.kind = Kind::kDissolve;
  EXPECT_TRUE(world_.Announce(decision));
  EXPECT_THAT(Sent(1),
              ElementsAre(Case::kOffers, Case::kSwitch, Case::kDissolve));
  EXPECT_THAT(Sent(0), IsEmpty());
  decision.kind = Kind::kEvict;
  EXPECT_FALSE(world_.Announce(decision));
}

// A world in which not everybody is connected to everybody.
class LargeWorldTest : public WorldKeeperTest {
 protected:
  static constexpr int64_t kMembers = 200;

  LargeWorldTest() {
    for (int64_t id = 0; id < kMembers; ++id) {
      Worker worker;
      worker.id = id;
      worker.ready = true;
      registry_.Add(10 + id, worker);
      decision_.members.push_back({id, absl::StrCat("host-", id)});
      decision_.offers.push_back(absl::StrCat("offer of ", id));
      decision_.to.push_back(id);
    }
    decision_.generation = 3;
  }
  v1::Prepare Announce() {
    decision_.kind = Kind::kPrepare;
    v1::Prepare prepare = world_.BeginPrepare(decision_);
    decision_.kind = Kind::kOffers;
    EXPECT_TRUE(world_.Announce(decision_));
    return prepare;
  }

  rendezvous::MembershipDecision decision_;
};

TEST_F(LargeWorldTest, MembersGetTheOffersThatTheyNeed) {
  EXPECT_FALSE(Announce().nccl());
  for (int64_t id = 0; id < kMembers; ++id) {
    const v1::Offers& offers = outbox_.offers[10 + id];
    EXPECT_EQ(offers.generation(), 3);
    const std::vector<int> peers =
        collective::Peers(kMembers, static_cast<int>(id));
    EXPECT_THAT(offers.ranks(), testing::ElementsAreArray(peers));
    ASSERT_EQ(offers.offers_size(), offers.ranks_size());
    for (int i = 0; i < offers.ranks_size(); ++i) {
      EXPECT_EQ(offers.offers(i), absl::StrCat("offer of ", offers.ranks(i)));
    }
  }
}

TEST_F(LargeWorldTest, AllIfSomebodyHasNccl) {
  registry_.FindById(77)->nccl = true;
  EXPECT_TRUE(Announce().nccl());
  for (int64_t id = 0; id < kMembers; ++id) {
    EXPECT_THAT(outbox_.offers[10 + id].ranks(), IsEmpty());
    EXPECT_EQ(outbox_.offers[10 + id].offers_size(), kMembers);
  }
}

TEST_F(LargeWorldTest, GivesNcclUpIfItFailsAgainAndAgain) {
  registry_.FindById(77)->nccl = true;
  EXPECT_TRUE(Announce().nccl());
  EXPECT_EQ(world_.OnNcclFailure(3), NcclVerdict::kGoOn);
  // Of another member.
  EXPECT_EQ(world_.OnNcclFailure(3), NcclVerdict::kGoOn);
  // Somebody died, who may be the reason.
  world_.OnLoss();
  EXPECT_EQ(world_.OnNcclFailure(4), NcclVerdict::kGoOn);
  EXPECT_TRUE(Announce().nccl());
  EXPECT_EQ(world_.OnNcclFailure(5), NcclVerdict::kWithout);
  EXPECT_FALSE(Announce().nccl());
  // It is said once.
  EXPECT_EQ(world_.OnNcclFailure(6), NcclVerdict::kGoOn);
}

TEST_F(LargeWorldTest, AStepShowsThatNcclWorks) {
  registry_.FindById(77)->nccl = true;
  for (int64_t generation = 3; generation < 10; ++generation) {
    decision_.generation = generation;
    EXPECT_TRUE(Announce().nccl());
    world_.Activate(decision_, absl::ZeroDuration(), 0, 1);
    world_.OnStep(generation);
    EXPECT_EQ(world_.OnNcclFailure(generation), NcclVerdict::kGoOn);
  }
}

// Connections are opened by the first sum: worlds become level and break.
TEST_F(WorldKeeperTest, GivesNcclUpIfNoWorldComesToItsFirstStep) {
  registry_.FindById(0)->nccl = true;
  registry_.FindById(1)->nccl = true;
  auto& membership = world_.membership();
  int64_t generation = 0;
  // Carries out what the membership decides: the members do their part of it.
  const auto form = [&](rendezvous::Membership::Decisions decisions) {
    while (!decisions.empty()) {
      const rendezvous::MembershipDecision decision = decisions.front();
      decisions.erase(decisions.begin());
      rendezvous::Membership::Decisions more;
      const auto add = [&](const rendezvous::Membership::Decisions& made) {
        more.insert(more.end(), made.begin(), made.end());
      };
      EXPECT_NE(decision.kind, Kind::kEvict) << decision.reason;
      if (decision.kind == Kind::kPrepare) {
        generation = decision.generation;
        EXPECT_EQ(world_.BeginPrepare(decision).nccl(), expect_nccl_);
        for (const auto& member : decision.members) {
          add(membership.Offered(At(0), member.worker_id, generation, "offer"));
        }
      } else if (decision.kind == Kind::kOffers) {
        for (const auto& member : decision.members) {
          add(membership.Connected(At(0), member.worker_id, generation));
        }
        if (decision.urgent) {
          add(membership.Level(At(0), decision.members[0].worker_id,
                               generation));
        }
      } else if (decision.kind == Kind::kSwitch) {
        add(membership.Level(At(0), decision.members[0].worker_id, generation));
      } else if (decision.kind == Kind::kActive) {
        world_.Activate(decision, absl::ZeroDuration(), 0, 1);
      }
      decisions.insert(decisions.end(), more.begin(), more.end());
    }
  };
  form(membership.Ready(At(0), 0, "host"));
  form(membership.Ready(At(0), 1, "host"));
  for (const bool gives_up : {false, true}) {
    ASSERT_EQ(world_.generation(), generation);
    ASSERT_EQ(world_.size(), 2u);
    const int64_t broken = generation;
    EXPECT_EQ(world_.OnNcclFailure(broken),
              gives_up ? NcclVerdict::kWithout : NcclVerdict::kGoOn);
    expect_nccl_ = !gives_up;
    form(membership.Broken(At(0), 0, broken, -1, "NCCL"));
    form(membership.Broken(At(0), 1, broken, -1, "the other"));
  }
  EXPECT_EQ(world_.generation(), generation);
}

// --collective=nccl.
TEST_F(LargeWorldTest, WithoutAnAlternativeTheJobIsHopeless) {
  WorldKeeper nccl(rendezvous::MembershipOptions(), "nccl", registry_, outbox_);
  EXPECT_EQ(nccl.OnNcclFailure(3), NcclVerdict::kGoOn);
  EXPECT_EQ(nccl.OnNcclFailure(4), NcclVerdict::kHopeless);
  EXPECT_EQ(nccl.OnNcclFailure(5), NcclVerdict::kGoOn);
}

TEST_F(LargeWorldTest, WhatHasWorkedIsNotHopeless) {
  WorldKeeper nccl(rendezvous::MembershipOptions(), "nccl", registry_, outbox_);
  registry_.FindById(77)->nccl = true;
  EXPECT_TRUE(nccl.BeginPrepare(decision_).nccl());
  nccl.Activate(decision_, absl::ZeroDuration(), 0, 1);
  nccl.OnStep(decision_.generation);
  for (int64_t generation = 4; generation < 9; ++generation) {
    EXPECT_EQ(nccl.OnNcclFailure(generation), NcclVerdict::kGoOn);
  }
}

// Worlds without NCCL prove nothing.
TEST_F(LargeWorldTest, OnlyStepsOverNcclCount) {
  EXPECT_EQ(world_.OnNcclFailure(3), NcclVerdict::kGoOn);
  world_.OnStep(4);
  EXPECT_EQ(world_.OnNcclFailure(5), NcclVerdict::kWithout);
}

TEST_F(WorldKeeperTest, OnlyMembersAtRestAreWokenOrToldThatTrainingIsDone) {
  Form();
  world_.Wake();
  world_.SendTrainingDone();
  EXPECT_THAT(Sent(0), IsEmpty());
  // Not a member, or of a world that is over.
  world_.OnIdle(1, 1);
  world_.OnIdle(0, 5);
  EXPECT_FALSE(world_.at_rest());
  world_.OnIdle(0, 1);
  EXPECT_TRUE(world_.at_rest());
  world_.SendTrainingDone();
  world_.SendTrainingDone();
  EXPECT_THAT(Sent(0), ElementsAre(Case::kTrainingDone));
  EXPECT_THAT(Sent(1), IsEmpty());
  world_.Wake();
  EXPECT_FALSE(world_.at_rest());
  EXPECT_THAT(Sent(0), ElementsAre(Case::kWake));
}

TEST_F(WorldKeeperTest, TheFirstStepOfAWorldIsOne) {
  EXPECT_TRUE(world_.OnStep(1));
  EXPECT_FALSE(world_.OnStep(1));
  EXPECT_TRUE(world_.OnStep(2));
}

TEST_F(WorldKeeperTest, NumbersGoOnAfterARestart) {
  world_.StartAfter(41);
  EXPECT_EQ(world_.last_generation(), 41);
  for (const auto& decision : world_.membership().Ready(At(0), 0, "host")) {
    if (decision.kind != Kind::kPrepare) continue;
    EXPECT_EQ(world_.BeginPrepare(decision).generation(), 42);
  }
  EXPECT_EQ(world_.last_generation(), 42);
}

TEST_F(WorldKeeperTest, SaysWhatKeepsWorkersFromTraining) {
  EXPECT_EQ(world_.Activity(0, 0), "starting workers");
  EXPECT_EQ(world_.Activity(0, 2),
            "compiling or loading the model in 2 workers");
  world_.membership().Ready(At(0), 0, "host");
  EXPECT_EQ(world_.Activity(1, 1), "connecting 1 worker");
  v1::Loading loading;
  loading.set_generation(1);
  loading.set_bytes(1500000);
  loading.set_total_bytes(4000000);
  world_.OnLoading(At(0), 0, loading);
  EXPECT_EQ(world_.Activity(1, 1), "loading the model's state, 1.5 of 4.0 MB");
}

}  // namespace
}  // namespace elasticdl::master
