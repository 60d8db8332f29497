#include "elasticdl/elastic/leveler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "elasticdl/common/failpoint.h"
#include "worlds.h"

namespace elasticdl::elastic {
namespace {

// A member whose state is `size` bytes of one value.
struct Member {
  bool has_state = true;
  int64_t lineage = 1;
  int64_t step = 0;
  uint64_t layout = 5;
  std::vector<char> weights;
  std::vector<char> slots;
  std::string meta;
  bool may_stream = false;
  bool whole_only = false;
  StateStream::Part part;
  // How often it was told that its state is overwritten.
  int overwritten = 0;
  // What it was told of its progress: bytes of so many.
  std::vector<std::pair<int64_t, int64_t>> moved;
};

Member MakeMember(int64_t step, char value, const std::string& meta,
                  size_t size = 100) {
  Member member;
  member.step = step;
  member.weights.assign(size, value);
  member.slots.assign(3, value);
  member.meta = meta;
  return member;
}

std::vector<absl::StatusOr<Levelled>> Level(std::vector<Member>& members) {
  auto world = MakeWorld(static_cast<int>(members.size()));
  std::vector<absl::StatusOr<Levelled>> results(members.size(),
                                                absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    threads.emplace_back([&, rank] {
      Member& member = members[rank];
      MemberState state;
      state.has_state = member.has_state;
      state.lineage = member.lineage;
      state.step = member.step;
      state.layout = member.layout;
      state.spans = {absl::MakeSpan(member.weights),
                     absl::MakeSpan(member.slots)};
      state.meta = member.meta;
      state.may_stream = member.may_stream;
      state.whole_only = member.whole_only;
      state.units = 100;
      state.part = member.part;
      state.overwrite = [&member] { ++member.overwritten; };
      LevelOptions options;
      options.timeout = absl::Seconds(30);
      options.moved = [&member](int64_t bytes, int64_t total) {
        member.moved.emplace_back(bytes, total);
      };
      results[rank] = BringLevel(*world[rank], state, options);
      // Who fails breaks the world for the others, as the worker does.
      if (!results[rank].ok()) world[rank]->Abort("test");
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(LevelerTest, TheMostAdvancedMemberGives) {
  std::vector<Member> members = {MakeMember(4, 'a', "old"),
                                 MakeMember(5, 'b', "new meta"),
                                 MakeMember(0, 'c', "")};
  members[2].has_state = false;
  const auto results = Level(members);
  for (size_t rank = 0; rank < members.size(); ++rank) {
    ASSERT_TRUE(results[rank].ok()) << results[rank].status();
    EXPECT_TRUE(results[rank]->world.ok());
    EXPECT_EQ(results[rank]->donor, 1);
    EXPECT_EQ(results[rank]->step, 5);
    EXPECT_EQ(results[rank]->meta, "new meta");
    EXPECT_EQ(results[rank]->received, rank != 1);
    EXPECT_EQ(members[rank].weights, members[1].weights);
    EXPECT_EQ(members[rank].slots, members[1].slots);
  }
}

TEST(LevelerTest, NothingIsSentWhenAllAreLevel) {
  std::vector<Member> members = {MakeMember(4, 'a', "x"),
                                 MakeMember(4, 'a', "x")};
  const auto results = Level(members);
  for (const auto& result : results) {
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->bytes, 0);
    EXPECT_FALSE(result->received);
  }
}

// What depends on it, all members must do or leave.
TEST(LevelerTest, AllKnowOfAMemberThatTakesStatesWholeOnly) {
  std::vector<Member> members = {MakeMember(3, 'a', "0"),
                                 MakeMember(3, 'a', "1")};
  for (const auto& levelled : Level(members)) {
    ASSERT_TRUE(levelled.ok());
    EXPECT_FALSE(levelled->any_whole_only);
  }
  members[1].whole_only = true;
  for (const auto& levelled : Level(members)) {
    ASSERT_TRUE(levelled.ok());
    EXPECT_TRUE(levelled->any_whole_only);
  }
}

TEST(LevelerTest, AHigherStepOfAnOlderLineageDoesNotCount) {
  std::vector<Member> members = {MakeMember(90, 'a', ""),
                                 MakeMember(5, 'b', "")};
  members[1].lineage = 2;
  const auto results = Level(members);
  ASSERT_TRUE(results[0].ok());
  EXPECT_TRUE(results[0]->received);
  EXPECT_EQ(results[0]->step, 5);
  EXPECT_EQ(results[0]->lineage, 2);
  EXPECT_EQ(members[0].weights, members[1].weights);
}

TEST(LevelerTest, AStateOfManyPiecesArrivesWhole) {
  constexpr size_t kSize = (20 << 20) + 13;
  std::vector<Member> members = {MakeMember(1, 'a', "", kSize),
                                 MakeMember(0, 'b', "", kSize)};
  for (size_t i = 0; i < kSize; ++i) {
    members[0].weights[i] = static_cast<char>(i * 31);
  }
  const auto results = Level(members);
  ASSERT_TRUE(results[1].ok()) << results[1].status();
  EXPECT_TRUE(members[0].weights == members[1].weights);
  // 20 MB and something in pieces of 8 MB, then the slots.
  constexpr int64_t kPiece = 8 << 20;
  constexpr int64_t kTotal = kSize + 3;
  for (const Member& member : members) {
    EXPECT_THAT(member.moved,
                testing::ElementsAre(testing::Pair(kPiece, kTotal),
                                     testing::Pair(2 * kPiece, kTotal),
                                     testing::Pair(kTotal - 3, kTotal),
                                     testing::Pair(kTotal, kTotal)));
  }
}

TEST(LevelerTest, MembersOfDifferentModelsAreRefused) {
  std::vector<Member> members = {MakeMember(1, 'a', ""),
                                 MakeMember(0, 'b', "")};
  members[1].layout = 6;
  for (const auto& result : Level(members)) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(result.status().message(), testing::HasSubstr("rank 1"));
  }
}

TEST(LevelerTest, WithoutAnyStateThereIsNothingToGive) {
  std::vector<Member> members = {MakeMember(0, 'a', ""),
                                 MakeMember(0, 'b', "")};
  members[0].has_state = members[1].has_state = false;
  for (const auto& result : Level(members)) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(LevelerTest, WhoHasNothingMayCatchUpLater) {
  std::vector<Member> members = {
      MakeMember(7, 'a', "the donor's"), MakeMember(7, 'a', ""),
      MakeMember(7, 'b', ""), MakeMember(2, 'c', ""), MakeMember(6, 'd', "")};
  members[0].may_stream = true;
  members[2].has_state = members[4].has_state = false;
  members[2].part = {10, 20};
  members[4].part = {30, 40};
  for (const auto& result : Level(members)) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->meta, "the donor's");
    EXPECT_FALSE(result->received);
    ASSERT_TRUE(result->stream.has_value());
    EXPECT_EQ(result->stream->num_behind(), 3);
    EXPECT_FALSE(result->stream->IsBehind(1));
    // A part of this step is kept; what is of another step is worth nothing.
    EXPECT_EQ(result->stream->part(2).have, 20u);
    EXPECT_EQ(result->stream->part(3).have, 0u);
    EXPECT_EQ(result->stream->part(4).begin, 30u);
    EXPECT_EQ(result->stream->part(4).have, 0u);
  }
  EXPECT_EQ(members[2].weights[0], 'b');
}

// It may be the only one left with its step.
TEST(LevelerTest, AStragglerIsNotMadeToWait) {
  std::vector<Member> members = {MakeMember(7, 'a', ""), MakeMember(6, 'b', ""),
                                 MakeMember(0, 'c', "")};
  members[0].may_stream = true;
  members[2].has_state = false;
  for (const auto& result : Level(members)) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_FALSE(result->stream.has_value());
  }
  EXPECT_EQ(members[1].weights, members[0].weights);
  EXPECT_EQ(members[2].weights, members[0].weights);
}

// A part is worth something until then.
TEST(LevelerTest, AMemberIsToldBeforeItsStateIsOverwritten) {
  std::vector<Member> members = {MakeMember(7, 'a', ""), MakeMember(6, 'b', ""),
                                 MakeMember(7, 'c', ""),
                                 MakeMember(7, 'a', "")};
  members[2].has_state = false;
  for (const auto& result : Level(members)) ASSERT_TRUE(result.ok());
  EXPECT_EQ(members[0].overwritten, 0);
  EXPECT_EQ(members[1].overwritten, 1);
  EXPECT_EQ(members[2].overwritten, 1);
  EXPECT_EQ(members[3].overwritten, 0) << "it is level";
}

TEST(LevelerTest, TheFirstMemberIsNeverBehind) {
  std::vector<Member> members = {MakeMember(0, 'a', ""),
                                 MakeMember(6, 'b', "")};
  members[1].may_stream = true;
  members[0].has_state = false;
  for (const auto& result : Level(members)) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_FALSE(result->stream.has_value());
  }
  EXPECT_EQ(members[0].weights, members[1].weights);
}

// The donor fails between two pieces: who was receiving keeps what it had.
TEST(LevelerTest, HalfAStateIsNotTakenOver) {
  ASSERT_TRUE(InitFailpoints("level.give=error@2").ok());
  std::vector<Member> members = {MakeMember(2, 'a', "", 20 << 20),
                                 MakeMember(1, 'b', "", 20 << 20)};
  const auto results = Level(members);
  ASSERT_TRUE(InitFailpoints("").ok());
  EXPECT_FALSE(results[0].ok());
  EXPECT_FALSE(results[1].ok());
  EXPECT_EQ(members[1].overwritten, 0);
  EXPECT_TRUE(members[1].weights == std::vector<char>(20 << 20, 'b'));
}

}  // namespace
}  // namespace elasticdl::elastic
