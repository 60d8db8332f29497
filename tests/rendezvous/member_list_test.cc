// Lists of members through both ends, with losses, joins and moves.
#include "elasticdl/rendezvous/member_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace elasticdl::rendezvous {
namespace {

using Ids = std::vector<int64_t>;

std::string HostOf(int64_t id) { return absl::StrCat("host-", id / 4); }

v1::MasterMessage Prepare(int64_t generation, const Ids& ids) {
  v1::MasterMessage message;
  v1::Prepare& prepare = *message.mutable_prepare();
  prepare.set_generation(generation);
  prepare.set_urgent(true);
  for (const int64_t id : ids) {
    v1::Member& member = *prepare.add_members();
    member.set_worker_id(id);
    member.set_host(HostOf(id));
  }
  return message;
}

Ids MembersOf(const v1::Prepare& prepare) {
  Ids ids;
  for (const v1::Member& member : prepare.members()) {
    EXPECT_EQ(member.host(), HostOf(member.worker_id()));
    ids.push_back(member.worker_id());
  }
  return ids;
}

Ids Numbers(int64_t count) {
  Ids ids;
  for (int64_t id = 0; id < count; ++id) ids.push_back(id);
  return ids;
}

TEST(MemberListTest, ALossIsAFewBytes) {
  MemberListWriter writer;
  MemberListReader reader;
  Ids ids = Numbers(10000);
  const auto first = writer.Encode(Prepare(1, ids));
  EXPECT_EQ(first.change, nullptr);
  v1::Prepare whole = first.whole->prepare();
  ASSERT_TRUE(reader.Decode(whole).ok());
  EXPECT_EQ(MembersOf(whole), ids);
  EXPECT_TRUE(whole.urgent());
  ids.erase(ids.begin() + 5000);
  ids.push_back(20000);
  const auto second = writer.Encode(Prepare(2, ids));
  ASSERT_NE(second.change, nullptr);
  EXPECT_EQ(second.base, 1);
  EXPECT_LT(second.change->ByteSizeLong(), 100u);
  v1::Prepare change = second.change->prepare();
  ASSERT_TRUE(reader.Decode(change).ok());
  EXPECT_EQ(MembersOf(change), ids);
}

TEST(MemberListTest, WhoMissedAListAsksForTheWhole) {
  MemberListWriter writer;
  MemberListReader reader;
  (void)writer.Encode(Prepare(1, {1, 2, 3}));
  const auto second = writer.Encode(Prepare(2, {1, 3}));
  v1::Prepare change = second.change->prepare();
  EXPECT_EQ(reader.Decode(change).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(writer.Again(1), nullptr);
  ASSERT_NE(writer.Again(2), nullptr);
  v1::Prepare whole = writer.Again(2)->prepare();
  ASSERT_TRUE(reader.Decode(whole).ok());
  EXPECT_EQ(MembersOf(whole), (Ids{1, 3}));
}

// Each member hears some of the worlds: it gets the change if it has heard of
// the one before, else the whole.
TEST(MemberListTest, RandomHistories) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const auto below = [&](size_t count) { return random() % count; };
  for (int history = 0; history < 50; ++history) {
    MemberListWriter writer;
    std::vector<MemberListReader> readers(5);
    std::vector<int64_t> known(readers.size(), 0);
    Ids ids = Numbers(static_cast<int64_t>(below(20)) + 1);
    int64_t next = 100;
    int64_t changes = 0;
    for (int64_t generation = 1; generation <= 30; ++generation) {
      const auto encoded = writer.Encode(Prepare(generation, ids));
      for (size_t i = 0; i < readers.size(); ++i) {
        if (below(4) == 0) continue;  // not a member of it
        const bool knows =
            encoded.change != nullptr && known[i] == encoded.base;
        v1::Prepare prepare =
            (knows ? encoded.change : encoded.whole)->prepare();
        ASSERT_TRUE(readers[i].Decode(prepare).ok());
        ASSERT_EQ(MembersOf(prepare), ids);
        known[i] = generation;
        changes += knows ? 1 : 0;
      }
      for (size_t lost = below(3); lost > 0 && !ids.empty(); --lost) {
        ids.erase(ids.begin() + static_cast<int64_t>(below(ids.size())));
      }
      for (size_t joined = below(3); joined > 0; --joined) {
        ids.push_back(next++);
      }
      if (below(5) == 0) std::shuffle(ids.begin(), ids.end(), random);
    }
    EXPECT_GT(changes, 0);
  }
}

TEST(MemberListTest, NonsenseIsRefusedAndAWholeListHelps) {
  const auto fails = [](const std::function<void(v1::MemberList&)>& spoil) {
    MemberListWriter writer;
    MemberListReader reader;
    v1::Prepare first = writer.Encode(Prepare(1, {1, 2, 3})).whole->prepare();
    EXPECT_TRUE(reader.Decode(first).ok());
    const auto second = writer.Encode(Prepare(2, {1, 3, 4}));
    v1::Prepare change = second.change->prepare();
    spoil(*change.mutable_list());
    EXPECT_EQ(reader.Decode(change).code(), absl::StatusCode::kInvalidArgument);
    // Nothing builds on what was refused.
    v1::Prepare third = writer.Encode(Prepare(3, {1, 3})).change->prepare();
    EXPECT_EQ(reader.Decode(third).code(),
              absl::StatusCode::kFailedPrecondition);
    v1::Prepare whole = writer.Again(3)->prepare();
    EXPECT_TRUE(reader.Decode(whole).ok());
    EXPECT_EQ(MembersOf(whole), (Ids{1, 3}));
  };
  fails([](v1::MemberList& list) { list.add_dropped(1); });
  fails([](v1::MemberList& list) { list.add_dropped(7); });
  fails([](v1::MemberList& list) { list.add_ids(9); });
  fails([](v1::MemberList& list) { list.set_host_of(0, 1); });
}

}  // namespace
}  // namespace elasticdl::rendezvous
