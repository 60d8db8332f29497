#include "elasticdl/rendezvous/prepare_delta.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

namespace elasticdl::rendezvous {
namespace {

using google::protobuf::util::MessageDifferencer;

v1::Prepare World(int64_t generation, const std::vector<int64_t>& ids) {
  v1::Prepare prepare;
  prepare.set_generation(generation);
  for (const int64_t id : ids) {
    v1::Member& member = *prepare.add_members();
    member.set_worker_id(id);
    member.set_host(absl::StrCat("host-", id % 3));
  }
  return prepare;
}

TEST(PrepareDeltaTest, OneIsGoneAndOneHasCome) {
  const v1::Prepare base = World(3, {4, 5, 6, 7});
  v1::Prepare next = World(4, {4, 6, 7, 9});
  next.set_urgent(true);
  next.set_restore_from("there");
  next.add_unsettled(5);
  next.set_saved_step(17);
  v1::Prepare delta = ShortenPrepare(base, next);
  EXPECT_EQ(delta.base_generation(), 3);
  EXPECT_THAT(delta.removed_ranks(), testing::ElementsAre(1));
  ASSERT_EQ(delta.members_size(), 1);
  EXPECT_EQ(delta.members(0).worker_id(), 9);
  ASSERT_TRUE(CompletePrepare(base, delta).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(delta, next)) << delta.DebugString();
}

// All fields arrive, those of later versions included.
TEST(PrepareDeltaTest, EveryFieldIsKept) {
  v1::Prepare next = World(4, {1});
  next.set_urgent(true);
  next.set_cold(true);
  next.set_restore_from("r");
  next.set_cold_step(3);
  next.add_unsettled(2);
  next.set_saved_step(4);
  next.set_last(true);
  next.set_evaluating(true);
  // A field that is added must be added here and in ShortenPrepare.
  EXPECT_EQ(v1::Prepare::descriptor()->field_count(), 12);
  v1::Prepare delta = ShortenPrepare(World(3, {1}), next);
  ASSERT_TRUE(CompletePrepare(World(3, {1}), delta).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(delta, next)) << delta.DebugString();
}

TEST(PrepareDeltaTest, CompleteOnesAreLeftAlone) {
  v1::Prepare full = World(4, {1, 2});
  ASSERT_TRUE(CompletePrepare(v1::Prepare(), full).ok());
  EXPECT_EQ(full.members_size(), 2);
}

TEST(PrepareDeltaTest, NonsenseIsRefused) {
  const v1::Prepare base = World(3, {4, 5});
  v1::Prepare other = World(5, {});
  other.set_base_generation(2);
  EXPECT_EQ(CompletePrepare(base, other).code(),
            absl::StatusCode::kFailedPrecondition);
  for (const std::vector<int>& ranks :
       {std::vector<int>{2}, {-1}, {1, 0}, {0, 0}}) {
    v1::Prepare bad = World(5, {});
    bad.set_base_generation(3);
    for (const int rank : ranks) bad.add_removed_ranks(rank);
    EXPECT_EQ(CompletePrepare(base, bad).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(PrepareDeltaTest, RandomWorlds) {
  std::mt19937 random(7);
  std::vector<int64_t> ids;
  int64_t next_id = 0;
  v1::Prepare base = World(1, ids);
  for (int generation = 2; generation < 2000; ++generation) {
    for (uint32_t n = random() % 4; n > 0; --n) ids.push_back(next_id++);
    for (uint32_t n = random() % 4; n > 0 && !ids.empty(); --n) {
      ids.erase(ids.begin() + random() % ids.size());
    }
    // Another order is told too, if not shortly.
    if (random() % 50 == 0) std::shuffle(ids.begin(), ids.end(), random);
    const v1::Prepare next = World(generation, ids);
    v1::Prepare delta = ShortenPrepare(base, next);
    ASSERT_TRUE(CompletePrepare(base, delta).ok());
    ASSERT_TRUE(MessageDifferencer::Equals(delta, next)) << generation;
    base = next;
  }
}

}  // namespace
}  // namespace elasticdl::rendezvous
