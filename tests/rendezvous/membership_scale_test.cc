// Membership with thousands of workers: how much work an event is.
#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "elasticdl/common/limits.h"
#include "elasticdl/rendezvous/membership.h"

namespace {

// Memory that this program has taken so far.
std::atomic<size_t> g_bytes = 0;

}  // namespace

void* operator new(size_t size) {
  g_bytes += size;
  void* const result = std::malloc(size);
  if (result == nullptr) std::abort();
  return result;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  g_bytes += size;
  return std::malloc(size);
}
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, size_t) noexcept { std::free(pointer); }

namespace elasticdl::rendezvous {
namespace {

// Memory taken is a measure of the work that does not depend on the machine.
class MembershipScaleTest : public ::testing::Test {
 protected:
  static constexpr int64_t kWorkers = 1000;
  // A world with all others is formed anew. Memory taken by all its events.
  size_t Reform(Membership& membership, int64_t lost, int64_t workers) {
    const size_t before = g_bytes;
    Membership::Decisions decisions =
        membership.Lost(now_, lost, "stream closed");
    EXPECT_EQ(decisions.size(), 1u);
    Form(membership, decisions.back(), workers - 1);
    return g_bytes - before;
  }
  // All members answer. One decision per phase, none per member.
  void Form(Membership& membership, const MembershipDecision& prepare,
            int64_t workers) {
    ASSERT_EQ(prepare.kind, MembershipDecision::Kind::kPrepare);
    ASSERT_EQ(static_cast<int64_t>(prepare.to.size()), workers);
    const int64_t generation = prepare.generation;
    size_t decisions = 0;
    for (const int64_t id : prepare.to) {
      decisions += membership.Offered(now_, id, generation, "offer").size();
    }
    EXPECT_EQ(decisions, 1u);
    for (const int64_t id : prepare.to) {
      decisions += membership.Connected(now_, id, generation).size();
    }
    EXPECT_EQ(decisions, 1u);
    decisions += membership.Level(now_, prepare.to[0], generation).size();
    EXPECT_EQ(decisions, 2u);
  }
  // The first `workers` form a world.
  void Start(Membership& membership, int64_t workers) {
    Membership::Decisions decisions;
    for (int64_t id = 0; id < workers; ++id) {
      decisions = membership.Ready(now_, id, "host");
    }
    ASSERT_EQ(decisions.size(), 1u);
    Form(membership, decisions[0], workers);
  }
  static MembershipOptions Options(int64_t min_workers) {
    MembershipOptions options;
    options.min_workers = min_workers;
    return options;
  }

  // Of this thread: others may use the machine.
  static absl::Duration CpuTime() {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return absl::DurationFromTimespec(time);
  }

  const absl::Time now_ = absl::FromUnixSeconds(0);
};

TEST_F(MembershipScaleTest, FormingTakesLinearWork) {
  size_t bytes[2];
  for (const int64_t workers : {kWorkers, 4 * kWorkers}) {
    Membership membership(Options(workers));
    Start(membership, workers);
    (void)membership.SetLimits(now_, 1, 0);
    bytes[workers > kWorkers] = Reform(membership, workers / 2, workers);
    EXPECT_EQ(static_cast<int64_t>(membership.active_members().size()),
              workers - 1);
  }
  EXPECT_GT(bytes[0], 0u);
  EXPECT_LT(bytes[1], 5 * bytes[0]);
}

TEST_F(MembershipScaleTest, AMembersAnswerTakesConstantWork) {
  Membership membership(Options(kWorkers));
  Membership::Decisions decisions;
  for (int64_t id = 0; id < kWorkers; ++id) {
    decisions = membership.Ready(now_, id, "host");
  }
  const size_t before = g_bytes;
  for (int64_t id = 1; id < kWorkers; ++id) {
    (void)membership.Offered(now_, id, decisions[0].generation, "offer");
  }
  // "offer" fits into a std::string.
  EXPECT_EQ(g_bytes - before, 0u);
}

// A thousand members get the model while the others train.
TEST_F(MembershipScaleTest, AMemberThatHasCaughtUpTakesConstantWork) {
  Membership membership(Options(kWorkers));
  Membership::Decisions decisions;
  for (int64_t id = 0; id < kWorkers; ++id) {
    decisions = membership.Ready(now_, id, "host");
  }
  const int64_t generation = decisions[0].generation;
  std::vector<int64_t> behind;
  for (int64_t id = 0; id < kWorkers; ++id) {
    (void)membership.Offered(now_, id, generation, "offer");
    if (id > 0) behind.push_back(id);
  }
  for (int64_t id = 0; id < kWorkers; ++id) {
    (void)membership.Connected(now_, id, generation);
  }
  (void)membership.Level(now_, 0, generation, behind);
  const size_t before = g_bytes;
  for (const int64_t id : behind) {
    EXPECT_TRUE(membership.CaughtUp(now_, id, generation).empty());
  }
  EXPECT_EQ(g_bytes - before, 0u);
  EXPECT_EQ(membership.num_level(), static_cast<size_t>(kWorkers));
}

// The master asks for it after every few messages.
TEST_F(MembershipScaleTest, TheNextTimerTakesConstantWork) {
  constexpr int64_t kMany = 64 * kWorkers;
  absl::Duration took[2];
  for (const int64_t workers : {kWorkers, kMany}) {
    Membership membership(Options(workers));
    Membership::Decisions decisions;
    for (int64_t id = 0; id < workers; ++id) {
      decisions = membership.Ready(now_, id, "host");
    }
    const int64_t generation = decisions[0].generation;
    for (int64_t id = 0; id < workers; ++id) {
      (void)membership.Offered(now_, id, generation, "offer");
    }
    for (int64_t id = 0; id < workers; ++id) {
      (void)membership.Connected(now_, id, generation);
    }
    for (int64_t id = 0; id < workers; ++id) {
      membership.Loading(now_, id, generation, LoadStage::kLoading);
    }
    const absl::Duration start = CpuTime();
    for (int64_t id = 0; id < kWorkers; ++id) {
      membership.Loading(now_, id, generation, LoadStage::kLoaded);
      EXPECT_LT(membership.NextTimer(), absl::InfiniteFuture());
    }
    took[workers > kWorkers] = CpuTime() - start;
  }
  // 64 times, if it looked at all members.
  EXPECT_LT(took[1], 16 * took[0]);
}

TEST_F(MembershipScaleTest, AThousandJoinersComeInTwoWorlds) {
  Membership membership(Options(1));
  Membership::Decisions first = membership.Ready(now_, 0, "host");
  size_t decisions = 0;
  for (int64_t id = 1; id < kWorkers; ++id) {
    decisions += membership.Ready(now_, id, "host").size();
  }
  EXPECT_EQ(decisions, 0u);
  const int64_t generation = first[0].generation;
  (void)membership.Offered(now_, 0, generation, "offer");
  (void)membership.Connected(now_, 0, generation);
  decisions = membership.Level(now_, 0, generation).size();
  EXPECT_EQ(decisions, 2u);
  for (int64_t id = 0; id < kWorkers; ++id) {
    decisions += membership.Offered(now_, id, generation + 1, "o").size();
  }
  for (int64_t id = 0; id < kWorkers; ++id) {
    decisions += membership.Connected(now_, id, generation + 1).size();
  }
  decisions += membership.Level(now_, 0, generation + 1).size();
  EXPECT_EQ(decisions, 5u);
  EXPECT_EQ(static_cast<int64_t>(membership.active_members().size()), kWorkers);
}

// What the options of a training job say (programs/master_options).
TEST_F(MembershipScaleTest, OneMoreThanAWorldHoldsStandsBy) {
  MembershipOptions options;
  options.min_workers = kMaxWorldSize;
  options.max_workers = kMaxWorldSize;
  Membership membership(options);
  Membership::Decisions decisions;
  for (int64_t id = 0; id < kMaxWorldSize; ++id) {
    decisions = membership.Ready(now_, id, "host");
  }
  Form(membership, decisions.back(), kMaxWorldSize);
  EXPECT_TRUE(membership.Ready(now_, kMaxWorldSize, "host").empty());
  EXPECT_EQ(static_cast<int>(membership.active_members().size()),
            kMaxWorldSize);
  // It takes the place of one that is lost.
  decisions = membership.Lost(now_, 5, "stream closed");
  Form(membership, decisions.back(), kMaxWorldSize);
}

}  // namespace
}  // namespace elasticdl::rendezvous
