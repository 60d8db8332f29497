// What a copy of a part may acknowledge; beside backup_schedule_test.cc, which
// tests it together with the master's part.
#include "part_role.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace elasticdl::ps {
namespace {

class PartRoleTest : public testing::Test {
 protected:
  void SetUp() override {
    v1::PsAssignment assignment;
    assignment.set_term(1);
    assignment.set_primary(true);
    assignment.set_backup_address("somewhere:1");
    ASSERT_TRUE(role_.Assign(assignment));
  }
  bool MayAcknowledge(int64_t position) {
    const auto may = role_.MayAcknowledge(1, position);
    EXPECT_TRUE(!may.has_value() || may->ok());
    return may.has_value();
  }

  PartRole role_;
};

// A backup that takes entries no faster than its primary, which is far ahead
// when the first of them arrive.
TEST_F(PartRoleTest, ASlowBackupCatchesUp) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    role_ = PartRole();
    SetUp();
    const auto behind = static_cast<int64_t>(random() % 5000);
    const auto workers = static_cast<int64_t>(random() % 16 + 1);
    // In so many of a hundred ticks the backup takes an entry.
    const uint64_t speed = random() % 81 + 20;
    int64_t appended = behind;
    int64_t acked = 0;
    int64_t acknowledged = behind;
    role_.OnAppended(appended);
    role_.OnSynchronize(7);
    PartRole::Tell tell = role_.OnAck(acked);
    int64_t ticks = 0;
    while (!tell.has_value()) {
      while (acknowledged < appended && MayAcknowledge(acknowledged + 1)) {
        ++acknowledged;
      }
      // Each worker has one push under way.
      if (appended - acknowledged < workers) role_.OnAppended(++appended);
      if (random() % 100 < speed && acked < appended) {
        tell = role_.OnAck(++acked);
      }
      ASSERT_LE(++ticks,
                (3 * behind + 1000) * 200 / static_cast<int64_t>(speed))
          << appended << " " << acked;
    }
    EXPECT_EQ(tell->current(), 7u);
    EXPECT_EQ(role_.state(), PartRole::State::kCurrent);
  }
}

TEST_F(PartRoleTest, NobodyWaitsForABackupThatIsLost) {
  role_.OnAppended(10000);
  EXPECT_TRUE(MayAcknowledge(10000));
  role_.OnSynchronize(7);
  // It has said nothing yet.
  EXPECT_TRUE(MayAcknowledge(10000));
  role_.OnAck(0);
  EXPECT_TRUE(MayAcknowledge(10000));
  EXPECT_FALSE(MayAcknowledge(10001));
  role_.OnAck(2);
  EXPECT_TRUE(MayAcknowledge(10001));
  EXPECT_FALSE(MayAcknowledge(10002));
  role_.OnBackupLost("gone");
  EXPECT_TRUE(MayAcknowledge(20000));
}

// Neither the one that catches up nor the one that has nearly everything; but
// what the master counts on is waited for.
TEST_F(PartRoleTest, ASilentBackupIsWaitedForOnlyIfItIsCurrent) {
  constexpr absl::Duration kLong = PartRole::kCatchUpPatience;
  role_.OnAppended(1000);
  // There is none yet.
  EXPECT_FALSE(role_.OnSilence(kLong));
  role_.OnSynchronize(7);
  EXPECT_FALSE(role_.OnAck(0).has_value());
  role_.OnAppended(1001);
  EXPECT_FALSE(MayAcknowledge(1001));
  EXPECT_FALSE(role_.OnSilence(kLong - absl::Milliseconds(1)));
  EXPECT_FALSE(MayAcknowledge(1001));
  EXPECT_TRUE(role_.OnSilence(kLong));
  EXPECT_TRUE(MayAcknowledge(1001));
  EXPECT_FALSE(role_.OnSilence(kLong));
  // It is back.
  EXPECT_FALSE(role_.OnAck(1000).has_value());
  EXPECT_EQ(role_.state(), PartRole::State::kJoining);
  EXPECT_FALSE(MayAcknowledge(1001));
  EXPECT_TRUE(role_.OnSilence(kLong));
  EXPECT_EQ(role_.state(), PartRole::State::kAlone);
  EXPECT_TRUE(MayAcknowledge(1001));
  EXPECT_TRUE(role_.OnAck(1001).has_value());
  EXPECT_EQ(role_.state(), PartRole::State::kCurrent);
  role_.OnAppended(1002);
  EXPECT_FALSE(role_.OnSilence(kLong));
  EXPECT_FALSE(MayAcknowledge(1002));
}

}  // namespace
}  // namespace elasticdl::ps
