#include "shm/slot_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

namespace elasticdl::collective {
namespace {

constexpr size_t kQuarter = 1024;

TEST(SlotRingTest, WaitsWhenMemoryIsUsedAgain) {
  SlotRing ring(kQuarter);
  for (uint32_t phase = 1; phase <= 64; ++phase) {
    const SlotRing::Place place = ring.Take(64, phase);
    EXPECT_EQ(place.offset, (phase - 1) * 64);
    EXPECT_FALSE(place.must_wait);
  }
  const SlotRing::Place again = ring.Take(1, 65);
  EXPECT_EQ(again.offset, 0u);
  EXPECT_TRUE(again.must_wait);
  EXPECT_EQ(again.free_at, 18u);
}

// Nobody has published phase 2 when everybody is about to do so.
TEST(SlotRingTest, TheSecondPhaseMayNeedAWholeQuarter) {
  SlotRing ring(kQuarter);
  ring.Take(kQuarter, 1);
  EXPECT_FALSE(ring.Take(kQuarter, 2).must_wait);
}

TEST(SlotRingTest, EmptyDataTakesNoRoom) {
  SlotRing ring(kQuarter);
  for (uint32_t phase = 1; phase <= 100; ++phase) {
    EXPECT_FALSE(ring.Take(0, phase).must_wait);
  }
  EXPECT_EQ(ring.Take(64, 101).offset, 0u);
}

// Whatever the sizes: memory is given out again only after a wait that covers
// its last use, and never a wait for a phase that needs the waiter itself.
TEST(SlotRingTest, NothingIsOverwrittenBeforeItIsRead) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  SlotRing ring(kQuarter);
  struct Use {
    size_t begin;
    size_t end;
    uint32_t phase;
  };
  std::deque<Use> uses;
  // All have published this much, as far as the waits say.
  uint32_t known = 0;
  for (uint32_t phase = 1; phase < 20000; ++phase) {
    const size_t bytes =
        random() % 3 == 0 ? random() % (kQuarter + 1) : random() % 100;
    const SlotRing::Place place = ring.Take(bytes, phase);
    if (place.must_wait) {
      known = std::max(known, place.free_at);
      ASSERT_LT(place.free_at, phase);
    }
    ASSERT_LE(place.offset + bytes, 4 * kQuarter);
    for (const Use& use : uses) {
      const bool overlaps =
          place.offset < use.end && use.begin < place.offset + bytes;
      ASSERT_TRUE(!overlaps || use.phase + 2 <= known) << "phase " << phase;
    }
    uses.push_back({place.offset, place.offset + bytes, phase});
    if (uses.size() > 500) uses.pop_front();
  }
}

}  // namespace
}  // namespace elasticdl::collective
