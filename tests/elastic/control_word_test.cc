#include "elasticdl/elastic/control_word.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace elasticdl::elastic {
namespace {

std::vector<float> Sum(const std::vector<MemberWord>& members) {
  const int size = static_cast<int>(members.size());
  std::vector<float> sum(ControlWordSize(size), 0.0F);
  std::vector<float> word(ControlWordSize(size), -1.0F);
  for (int rank = 0; rank < size; ++rank) {
    FillControlWord(members[static_cast<size_t>(rank)], rank, size,
                    word.data());
    for (size_t i = 0; i < word.size(); ++i) sum[i] += word[i];
  }
  return sum;
}

TEST(ControlWordTest, TheSumTellsWhatEachMemberSaid) {
  std::vector<MemberWord> members(3);
  members[0].records = 64;
  members[0].loss_sum = 64 * 0.5F;
  members[2].records = 32;
  members[2].loss_sum = 32 * 2.0F;
  members[1].switch_seen = members[2].switch_seen = true;
  members[2].report_wanted = true;
  const RoundSummary summary = ReadControlWord(Sum(members).data(), 3);
  EXPECT_EQ(summary.records, (std::vector<int64_t>{64, 0, 32}));
  EXPECT_EQ(summary.total_records, 96);
  EXPECT_NEAR(summary.mean_loss, 1.0, 1e-6);
  EXPECT_EQ(summary.switch_seen, 2);
  EXPECT_TRUE(summary.report_wanted);
  EXPECT_FALSE(summary.stop);
  EXPECT_FALSE(summary.evaluate);
}

TEST(ControlWordTest, OneWishIsEnough) {
  std::vector<MemberWord> members(4);
  members[3].stop = true;
  members[1].evaluate = true;
  const RoundSummary summary = ReadControlWord(Sum(members).data(), 4);
  EXPECT_TRUE(summary.stop);
  EXPECT_TRUE(summary.evaluate);
  EXPECT_EQ(summary.total_records, 0);
  EXPECT_EQ(summary.mean_loss, 0);
}

TEST(ControlWordTest, TheLargestWorldFits) {
  std::vector<float> word(ControlWordSize(kMaxWorldSize));
  MemberWord last;
  last.records = 5;
  FillControlWord(last, kMaxWorldSize - 1, kMaxWorldSize, word.data());
  const RoundSummary summary = ReadControlWord(word.data(), kMaxWorldSize);
  EXPECT_EQ(summary.records.back(), 5);
  EXPECT_EQ(summary.total_records, 5);
}

TEST(ControlWordTest, RefusesWhatItHasNoRoomFor) {
  MemberWord word;
  word.records = kMaxRecordsPerStep;
  EXPECT_TRUE(CheckControlWord(word, kMaxWorldSize).ok());
  const absl::Status world = CheckControlWord(word, kMaxWorldSize + 1);
  EXPECT_EQ(world.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(world.message()),
              testing::HasSubstr("a world of 65537 workers"));
  word.records = kMaxRecordsPerStep + 1;
  const absl::Status step = CheckControlWord(word, 1);
  EXPECT_EQ(step.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(step.message()),
              testing::HasSubstr("--minibatch_size"));
}

// A mistake in this program must not write over what lies before the word.
TEST(ControlWordDeathTest, NeverWritesBeforeTheBuffer) {
  std::vector<float> room(ControlWordSize(kMaxWorldSize));
  EXPECT_DEATH(FillControlWord({}, 0, kMaxWorldSize + 1, room.data()),
               "check failed");
  EXPECT_DEATH(FillControlWord({}, 2, 2, room.data()), "check failed");
}

TEST(ControlWordTest, EveryMembersPartIsOfThisRound) {
  constexpr int64_t kRound = 3;
  std::vector<MemberWord> members(3);
  for (MemberWord& member : members) member.round = kRound;
  EXPECT_TRUE(CheckRound(Sum(members).data(), 3, kRound).ok());
  // Left over from the round before.
  members[1].round = kRound - 1;
  const absl::Status stale = CheckRound(Sum(members).data(), 3, kRound);
  EXPECT_EQ(stale.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(stale.message()), testing::HasSubstr("round 3"));
  // Nothing of a member, and nonsense of a member.
  std::vector<float> sum(ControlWordSize(3), 0.0F);
  EXPECT_FALSE(CheckRound(sum.data(), 3, kRound).ok());
  sum.assign(sum.size(), std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(CheckRound(sum.data(), 3, kRound).ok());
}

TEST(ControlWordTest, CountsAreExactUpToTheLimit) {
  std::vector<MemberWord> members(2);
  members[0].records = kMaxRecordsPerStep;
  members[1].records = kMaxRecordsPerStep - 1;
  const RoundSummary summary = ReadControlWord(Sum(members).data(), 2);
  EXPECT_EQ(summary.records[0], kMaxRecordsPerStep);
  EXPECT_EQ(summary.records[1], kMaxRecordsPerStep - 1);
}

}  // namespace
}  // namespace elasticdl::elastic
