#include "silence_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class SilenceWatchTest : public ::testing::Test {
 protected:
  absl::Time At(double seconds) {
    return absl::UnixEpoch() + absl::Seconds(seconds);
  }
  // All turns that are due until then.
  SilenceWatch::Turn Until(double seconds) {
    SilenceWatch::Turn all;
    for (; time_ < seconds; time_ += 0.5) {
      const SilenceWatch::Turn turn = watch_.OnTimer(At(time_));
      all.ask.insert(all.ask.end(), turn.ask.begin(), turn.ask.end());
      all.silent.insert(all.silent.end(), turn.silent.begin(),
                        turn.silent.end());
    }
    return all;
  }

  SilenceWatch watch_;
  double time_ = 0;
};

TEST_F(SilenceWatchTest, WhoTalksIsNotAsked) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(watch_.OnHeard(At(i), 7));
    const SilenceWatch::Turn turn = Until(i + 1);
    EXPECT_THAT(turn.ask, IsEmpty());
    EXPECT_THAT(turn.silent, IsEmpty());
  }
}

TEST_F(SilenceWatchTest, WhoIsQuietIsAskedAndAnswers) {
  watch_.OnHeard(At(0), 7);
  EXPECT_THAT(Until(3).ask, IsEmpty());
  EXPECT_THAT(Until(4).ask, ElementsAre(7));
  EXPECT_FALSE(watch_.OnHeard(At(4), 7));
  EXPECT_THAT(Until(7).ask, IsEmpty());
  EXPECT_THAT(Until(8).ask, ElementsAre(7));
}

// Quiet ones at the beginning of the list must not hide those at its end.
TEST_F(SilenceWatchTest, EverybodysTurnComes) {
  constexpr ConnectionId kLast = 2000;
  for (ConnectionId id = 1; id <= kLast; ++id) watch_.OnHeard(At(0), id);
  bool asked = false;
  for (int second = 1; second <= 20; ++second) {
    for (const ConnectionId id : Until(second).ask) {
      // All but the last answer.
      if (id != kLast) watch_.OnHeard(At(second), id);
      asked |= id == kLast;
    }
  }
  EXPECT_TRUE(asked);
}

TEST_F(SilenceWatchTest, WhoDoesNotAnswerIsSilentOnce) {
  watch_.OnHeard(At(0), 7);
  watch_.OnHeard(At(0), 8);
  EXPECT_THAT(Until(4).ask, ElementsAre(7, 8));
  watch_.OnHeard(At(4), 8);
  SilenceWatch::Turn turn = Until(6);
  ASSERT_THAT(turn.silent, SizeIs(1));
  EXPECT_EQ(turn.silent[0].connection, 7u);
  EXPECT_EQ(turn.silent[0].silence, absl::Seconds(5));
  turn = Until(30);
  for (const auto& silent : turn.silent) EXPECT_EQ(silent.connection, 8u);
  EXPECT_TRUE(watch_.OnHeard(At(30), 7));
  EXPECT_FALSE(watch_.OnHeard(At(30), 7));
}

TEST_F(SilenceWatchTest, WhoIsGoneIsNotAsked) {
  watch_.OnHeard(At(0), 7);
  watch_.Remove(7);
  EXPECT_THAT(Until(10).ask, IsEmpty());
  EXPECT_EQ(watch_.next(), absl::InfiniteFuture());
}

// It was the master that was away: nobody is silent before being asked anew.
TEST_F(SilenceWatchTest, NobodyIsSilentBecauseTheMasterWasStopped) {
  watch_.OnHeard(At(0), 7);
  EXPECT_THAT(Until(4).ask, ElementsAre(7));
  time_ = 60;
  const SilenceWatch::Turn turn = Until(60.5);
  EXPECT_THAT(turn.silent, IsEmpty());
  EXPECT_THAT(turn.ask, ElementsAre(7));
  EXPECT_THAT(Until(63).silent, SizeIs(1));
}

TEST_F(SilenceWatchTest, ThousandsAreAskedBitByBit) {
  for (ConnectionId id = 0; id < 1000; ++id) watch_.OnHeard(At(0), id);
  EXPECT_THAT(Until(3.5).ask, SizeIs(SilenceWatch::kMostAsked));
  EXPECT_THAT(Until(4).ask, SizeIs(SilenceWatch::kMostAsked));
  const SilenceWatch::Turn turn = Until(30);
  EXPECT_THAT(turn.ask, SizeIs(1000 - 2 * SilenceWatch::kMostAsked));
  EXPECT_THAT(turn.silent, SizeIs(1000));
}

}  // namespace
}  // namespace elasticdl::master
