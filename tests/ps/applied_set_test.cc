// The names of applied pushes, against a set of single records.
#include "applied_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <tuple>

namespace elasticdl::ps {
namespace {

v1::PsPush Push(int epoch, const std::string& shard, int64_t begin,
                int64_t end) {
  v1::PsPush push;
  push.set_epoch(epoch);
  push.set_shard(shard);
  push.set_begin(begin);
  push.set_end(end);
  return push;
}

using Answer = AppliedSet::Answer;

TEST(AppliedSetTest, NeighboursBecomeOne) {
  AppliedSet set;
  set.Add(Push(0, "a", 0, 10));
  set.Add(Push(0, "a", 20, 30));
  EXPECT_EQ(set.size(), 2u);
  set.Add(Push(0, "a", 10, 20));
  EXPECT_EQ(set.size(), 1u);
  EXPECT_EQ(set.Test(Push(0, "a", 5, 25)), Answer::kThere);
  EXPECT_EQ(set.Test(Push(0, "a", 25, 31)), Answer::kTorn);
  EXPECT_EQ(set.Test(Push(0, "a", 30, 31)), Answer::kNew);
  EXPECT_EQ(set.Test(Push(1, "a", 0, 10)), Answer::kNew);
  EXPECT_EQ(set.Test(Push(0, "b", 0, 10)), Answer::kNew);
}

TEST(AppliedSetTest, OldEpochsAreForgotten) {
  AppliedSet set;
  for (int epoch = 0; epoch < 5; ++epoch) set.Add(Push(epoch, "a", 0, 10));
  set.ForgetBefore(3);
  EXPECT_EQ(set.size(), 2u);
  EXPECT_EQ(set.Test(Push(2, "a", 0, 10)), Answer::kForgotten);
  EXPECT_EQ(set.Test(Push(3, "a", 0, 10)), Answer::kThere);
  set.ForgetBefore(1);
  EXPECT_EQ(set.oldest_epoch(), 3);
}

TEST(AppliedSetTest, AgreesWithASetOfRecords) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    AppliedSet set;
    std::set<std::tuple<int, std::string, int64_t>> records;
    for (int i = 0; i < 60; ++i) {
      const int epoch = static_cast<int>(random() % 2);
      const std::string shard = random() % 2 == 0 ? "a" : "b";
      const auto begin = static_cast<int64_t>(random() % 40);
      const auto end = begin + 1 + static_cast<int64_t>(random() % 8);
      int64_t there = 0;
      for (int64_t r = begin; r < end; ++r) {
        there += static_cast<int64_t>(records.count({epoch, shard, r}));
      }
      const Answer expected = there == 0             ? Answer::kNew
                              : there == end - begin ? Answer::kThere
                                                     : Answer::kTorn;
      const v1::PsPush push = Push(epoch, shard, begin, end);
      ASSERT_EQ(set.Test(push), expected) << begin << " " << end;
      if (expected != Answer::kNew) continue;
      set.Add(push);
      for (int64_t r = begin; r < end; ++r) records.insert({epoch, shard, r});
      if (i % 10 != 0) continue;
      set = AppliedSet::FromProto(set.ToProto());
    }
  }
}

TEST(AppliedSetTest, UnionAndDifferenceAgreeWithSetsOfRecords) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    AppliedSet sets[2];
    std::set<int64_t> records[2];
    for (int i = 0; i < 20; ++i) {
      const size_t which = random() % 2;
      const auto begin = static_cast<int64_t>(random() % 60);
      const auto end = begin + 1 + static_cast<int64_t>(random() % 8);
      sets[which].Add(Push(0, "a", begin, end));
      for (int64_t r = begin; r < end; ++r) records[which].insert(r);
    }
    AppliedSet sum = sets[0];
    sum.AddAll(sets[1]);
    AppliedSet rest = sets[0];
    rest.RemoveAll(sets[1]);
    for (int64_t r = 0; r < 70; ++r) {
      const bool a = records[0].count(r) != 0;
      const bool b = records[1].count(r) != 0;
      const v1::PsPush one = Push(0, "a", r, r + 1);
      ASSERT_EQ(sum.Test(one) == Answer::kThere, a || b) << r;
      ASSERT_EQ(rest.Test(one) == Answer::kThere, a && !b) << r;
    }
  }
}

}  // namespace
}  // namespace elasticdl::ps
