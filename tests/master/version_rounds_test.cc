#include "version_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace elasticdl::master {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

VersionRounds::Gradient Make(int64_t worker, int64_t begin, int64_t base) {
  VersionRounds::Gradient gradient;
  gradient.worker_id = worker;
  gradient.range.set_shard("s");
  gradient.range.set_begin(begin);
  gradient.range.set_end(begin + 10);
  gradient.base_version = base;
  return gradient;
}

std::vector<int64_t> Workers(
    const std::vector<VersionRounds::Gradient>& gradients) {
  std::vector<int64_t> workers;
  for (const auto& gradient : gradients) workers.push_back(gradient.worker_id);
  return workers;
}

TEST(VersionRoundsTest, WaitsForEnoughGradients) {
  VersionRounds rounds({/*grads_to_wait=*/2, /*tolerance=*/0, /*servers=*/1});
  EXPECT_TRUE(rounds.Add(Make(0, 0, 0)));
  EXPECT_THAT(rounds.Next(/*more=*/true), IsEmpty());
  EXPECT_TRUE(rounds.Add(Make(1, 10, 0)));
  EXPECT_THAT(Workers(rounds.Next(true)), ElementsAre(0, 1));
  EXPECT_EQ(rounds.commit().version(), 1);
  EXPECT_EQ(rounds.commit().pushes_size(), 2);
  EXPECT_THAT(rounds.commit().pushes(1).bounds(), ElementsAre(10, 20));
}

TEST(VersionRoundsTest, DoesNotWaitForWhoCannotCome) {
  VersionRounds rounds({3, 0, 1});
  ASSERT_TRUE(rounds.Add(Make(0, 0, 0)));
  EXPECT_THAT(Workers(rounds.Next(/*more=*/false)), ElementsAre(0));
}

TEST(VersionRoundsTest, OneVersionAtATime) {
  VersionRounds rounds({1, 5, /*servers=*/2});
  ASSERT_TRUE(rounds.Add(Make(0, 0, 0)));
  ASSERT_TRUE(rounds.Add(Make(1, 10, 0)));
  EXPECT_THAT(Workers(rounds.Next(true)), ElementsAre(0));
  EXPECT_THAT(rounds.Next(true), IsEmpty());
  EXPECT_FALSE(rounds.Applied(0, 1));
  EXPECT_FALSE(rounds.Applied(0, 1)) << "said twice by the same server";
  EXPECT_TRUE(rounds.Applied(1, 1));
  EXPECT_FALSE(rounds.open());
  EXPECT_THAT(Workers(rounds.Next(true)), ElementsAre(1));
}

TEST(VersionRoundsTest, RefusesWhatIsTooOld) {
  VersionRounds rounds({1, /*tolerance=*/1, 1});
  for (int64_t v = 0; v < 3; ++v) {
    ASSERT_TRUE(rounds.Add(Make(0, v * 10, v)));
    ASSERT_FALSE(rounds.Next(true).empty());
    ASSERT_TRUE(rounds.Applied(0, v + 1));
  }
  EXPECT_FALSE(rounds.Add(Make(1, 100, 1)));
  EXPECT_TRUE(rounds.Add(Make(1, 100, 2)));
}

TEST(VersionRoundsTest, TellsWhatANewVersionMadeTooOld) {
  VersionRounds rounds({1, 0, 1});
  ASSERT_TRUE(rounds.Add(Make(0, 0, 0)));
  ASSERT_TRUE(rounds.Add(Make(1, 10, 0)));
  ASSERT_THAT(Workers(rounds.Next(true)), ElementsAre(0));
  EXPECT_THAT(Workers(rounds.TakeStale()), ElementsAre(1));
  EXPECT_FALSE(rounds.Waits(1));
}

TEST(VersionRoundsTest, ForgetsWhoIsLost) {
  VersionRounds rounds({2, 0, 1});
  ASSERT_TRUE(rounds.Add(Make(0, 0, 0)));
  rounds.Drop(0);
  EXPECT_THAT(rounds.Next(/*more=*/false), IsEmpty());
}

TEST(VersionRoundsTest, GoesOnWithWhatAMasterBeforeHasDecided) {
  VersionRounds rounds({1, 0, 2});
  v1::PsCommit commit;
  commit.set_version(7);
  rounds.Resume(commit);
  EXPECT_FALSE(rounds.open()) << "all servers had it";
  EXPECT_EQ(rounds.version(), 7);
  commit.add_pushes()->set_shard("s");
  rounds.Resume(commit);
  ASSERT_TRUE(rounds.open());
  EXPECT_EQ(rounds.commit().version(), 7);
  EXPECT_FALSE(rounds.Add(Make(0, 0, 6)));
  EXPECT_FALSE(rounds.Applied(0, 6)) << "an older version";
  EXPECT_FALSE(rounds.Applied(0, 7));
  EXPECT_TRUE(rounds.Applied(1, 7));
}

// Workers come, compute, die and are told to compute again, in any order: every
// minibatch is in exactly one version, and no version is made of an old
// gradient.
TEST(VersionRoundsTest, RandomSchedules) {
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % n); };
    const int64_t tolerance = below(3);
    const int workers = 1 + below(5);
    const int servers = 1 + below(3);
    VersionRounds rounds({1 + below(workers), tolerance, servers});
    // What each worker computes, and on which version.
    struct Busy {
      int64_t begin = -1;
      int64_t base = 0;
    };
    std::map<int64_t, Busy> busy;
    std::set<int64_t> due;
    for (int64_t i = 0; i < 30; ++i) due.insert(i * 10);
    std::map<int64_t, int> times;
    int64_t visible = 0;
    std::set<int> applied;
    int steps = 0;
    const auto progress = [&] {
      bool more = false;
      for (const auto& [worker, what] : busy) more |= !rounds.Waits(worker);
      const auto made = rounds.Next(more);
      for (const auto& gradient : made) {
        ++times[gradient.range.begin()];
        EXPECT_GE(gradient.base_version, rounds.version() - 1 - tolerance);
        busy.erase(gradient.worker_id);
      }
      for (const auto& stale : rounds.TakeStale()) {
        busy[stale.worker_id].base = -1;
      }
      if (!made.empty()) applied.clear();
    };
    while (times.size() < 30) {
      ASSERT_LT(++steps, 20000) << "it does not get on";
      const int64_t worker = below(workers);
      const auto found = busy.find(worker);
      switch (below(5)) {
        case 0:
          if (found == busy.end() && !due.empty()) {
            busy[worker] = {*due.begin(), visible};
            due.erase(due.begin());
          }
          break;
        case 1:
          if (found != busy.end() && !rounds.Waits(worker)) {
            if (found->second.base < 0) {
              found->second.base = visible;
            } else if (!rounds.Add(Make(worker, found->second.begin,
                                        found->second.base))) {
              found->second.base = -1;
            }
          }
          break;
        case 2:
          if (rounds.open()) {
            const int server = below(servers);
            if (rounds.Applied(server, rounds.version())) {
              visible = rounds.version();
            }
          }
          break;
        case 3:
          if (found != busy.end() && below(10) == 0) {
            rounds.Drop(worker);
            due.insert(found->second.begin);
            busy.erase(found);
          }
          break;
        default:
          break;
      }
      progress();
    }
    for (const auto& [begin, count] : times) {
      ASSERT_EQ(count, 1) << "minibatch " << begin;
    }
  }
}

}  // namespace
}  // namespace elasticdl::master
