#include "elasticdl/elastic/state_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace elasticdl::elastic {
namespace {

using Part = StateStream::Part;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(StateStreamTest, OneTurnMakesAMemberLevel) {
  StateStream stream(10, {std::nullopt, Part{}});
  EXPECT_TRUE(stream.active());
  EXPECT_TRUE(stream.IsBehind(1));
  EXPECT_FALSE(stream.IsBehind(0));
  StateStream::Range piece = stream.Next(7);
  EXPECT_EQ(piece.begin, 0u);
  EXPECT_EQ(piece.end, 7u);
  EXPECT_THAT(stream.Passed(piece), IsEmpty());
  EXPECT_EQ(stream.part(1).have, 7u);
  piece = stream.Next(7);
  EXPECT_EQ(piece.end, 10u);
  EXPECT_THAT(stream.Passed(piece), ElementsAre(1));
  EXPECT_FALSE(stream.active());
}

TEST(StateStreamTest, ALaterMemberBeginsInTheMiddle) {
  StateStream stream(10, {std::nullopt, Part{0, 6}, Part{}});
  EXPECT_EQ(stream.NumBehindBefore(2), 1);
  StateStream::Range piece = stream.Next(100);
  EXPECT_EQ(piece.begin, 6u);
  EXPECT_EQ(piece.end, 10u);
  EXPECT_THAT(stream.Passed(piece), ElementsAre(1));
  piece = stream.Next(100);
  EXPECT_EQ(piece.begin, 0u);
  EXPECT_EQ(piece.end, 6u);
  EXPECT_THAT(stream.Passed(piece), ElementsAre(2));
}

TEST(StateStreamTest, PartsThatEndElsewhereOrMakeNoSenseAreGivenUp) {
  const StateStream stream(10, {std::nullopt, Part{8, 5}, Part{0, 2},
                                Part{0, 3}, Part{12, 1}, Part{3, 10}});
  EXPECT_EQ(stream.part(1).have, 5u);
  EXPECT_EQ(stream.part(2).have, 0u);
  EXPECT_EQ(stream.part(2).begin, 3u);
  EXPECT_EQ(stream.part(3).have, 3u);
  EXPECT_EQ(stream.part(4).have, 0u);
  EXPECT_EQ(stream.part(5).have, 0u);
}

TEST(StateStreamTest, APartIsOneOrTwoRanges) {
  EXPECT_THAT(RangesOf({3, 0}, 10), IsEmpty());
  ASSERT_EQ(RangesOf({3, 7}, 10).size(), 1u);
  EXPECT_EQ(RangesOf({3, 7}, 10)[0].end, 10u);
  ASSERT_EQ(RangesOf({8, 5}, 10).size(), 2u);
  EXPECT_EQ(RangesOf({8, 5}, 10)[1].end, 3u);
}

// A donor whose state changes in every step, members that come and go, worlds
// that break: who is level has the donor's state.
class Schedule {
 public:
  explicit Schedule(uint32_t seed)
      : random_(seed), donor_(1 + random_() % 40) {}

  void Go() {
    for (int world = 0; world < 12; ++world) {
      if (random_() % 3 == 0) members_.emplace_back(donor_.size());
      if (!members_.empty() && random_() % 4 == 0) {
        members_.erase(members_.begin() + random_() % members_.size());
      }
      Train();
    }
  }
  int levelled() const { return levelled_; }

 private:
  struct Member {
    explicit Member(size_t units) : state(units, 99) {}
    std::vector<uint32_t> state;
    Part part;
    bool level = false;
  };

  void Train() {
    StateStream::Parts parts = {std::nullopt};
    for (const Member& member : members_) {
      parts.push_back(member.level ? std::nullopt
                                   : std::make_optional(member.part));
    }
    StateStream stream(donor_.size(), parts);
    Sync(stream);
    for (uint32_t step = random_() % 12; step > 0; --step) {
      for (uint32_t& unit : donor_) unit = unit * 3 + step;
      for (Member& member : members_) {
        for (const auto& range : Held(member)) {
          for (size_t i = range.begin; i < range.end; ++i) {
            member.state[i] = member.state[i] * 3 + step;
          }
        }
      }
      if (stream.active()) Pass(stream);
    }
  }
  std::vector<StateStream::Range> Held(const Member& member) const {
    if (member.level) return {{0, donor_.size()}};
    return RangesOf(member.part, donor_.size());
  }
  void Pass(StateStream& stream) {
    const StateStream::Range piece = stream.Next(1 + random_() % 9);
    // A broken transfer leaves anything behind, and counts for nothing.
    const bool breaks = random_() % 10 == 0;
    for (Member& member : members_) {
      if (member.level) continue;
      for (size_t i = piece.begin; i < piece.end; ++i) {
        member.state[i] = breaks ? 77 : donor_[i];
      }
    }
    if (!breaks) stream.Passed(piece);
    Sync(stream);
  }
  void Sync(const StateStream& stream) {
    for (size_t i = 0; i < members_.size(); ++i) {
      Member& member = members_[i];
      const int rank = static_cast<int>(i) + 1;
      if (stream.IsBehind(rank)) {
        member.part = stream.part(rank);
      } else if (!member.level) {
        member.level = true;
        ++levelled_;
      }
      for (const auto& range : Held(member)) {
        for (size_t k = range.begin; k < range.end; ++k) {
          ASSERT_EQ(member.state[k], donor_[k]);
        }
      }
    }
  }

  std::mt19937 random_;
  std::vector<uint32_t> donor_;
  std::vector<Member> members_;
  int levelled_ = 0;
};

TEST(StateStreamTest, RandomSchedules) {
  int levelled = 0;
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Schedule run(seed);
    run.Go();
    levelled += run.levelled();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(levelled, 1000);
}

}  // namespace
}  // namespace elasticdl::elastic
