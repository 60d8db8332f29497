#include "range_queue.h"

#include <gmock/gmock.h>

#include <set>

#include "task_fixture.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BlockIndex MakeBlocks(std::vector<v1::LedgerShard> shards, int64_t size) {
  return BlockIndex::Create(std::move(shards), size).value();
}

std::vector<std::string> PopAll(RangeQueue& queue, int64_t limit = 1000) {
  std::vector<std::string> all;
  while (const auto range = queue.Pop(limit)) {
    const v1::LedgerRange proto = queue.blocks().ToProto(*range);
    all.push_back(proto.shard() + std::to_string(proto.begin()) + "-" +
                  std::to_string(proto.end()));
  }
  return all;
}

TEST(BlockIndexTest, BlocksNeverCrossAShard) {
  RangeQueue queue(MakeBlocks({MakeShard("b", 5, 12), MakeShard("empty", 3, 3),
                               MakeShard("a", 0, 4)},
                              4),
                   {});
  EXPECT_EQ(queue.blocks().num_blocks(), 3);
  EXPECT_EQ(queue.blocks().num_records(), 11);
  EXPECT_THAT(PopAll(queue), ElementsAre("a0-4", "b5-9", "b9-12"));
}

TEST(BlockIndexTest, RefusesOverlapsAndBadRanges) {
  const auto overlap =
      BlockIndex::Create({MakeShard("a", 0, 10), MakeShard("a", 9, 20)}, 4);
  EXPECT_THAT(std::string(overlap.status().message()), HasSubstr("overlap"));
  EXPECT_FALSE(BlockIndex::Create({MakeShard("a", 5, 4)}, 4).ok());
  EXPECT_FALSE(BlockIndex::Create({MakeShard("a", 0, 4)}, 0).ok());
  EXPECT_FALSE(
      BlockIndex::Create({MakeShard("a", 0, int64_t{1} << 40)}, 1).ok());
  EXPECT_TRUE(
      BlockIndex::Create({MakeShard("a", 9, 20), MakeShard("a", 0, 9)}, 4)
          .ok());
}

TEST(BlockIndexTest, FindsWhatItDescribes) {
  const BlockIndex blocks = MakeBlocks(
      {MakeShard("a", 0, 9), MakeShard("a", 20, 30), MakeShard("b", 7, 8)}, 4);
  for (int64_t i = 0; i < blocks.num_blocks(); ++i) {
    const BlockIndex::Block block = blocks.at(i);
    const v1::LedgerRange proto =
        blocks.ToProto(Range{2, i, block.begin, block.end});
    const auto found = blocks.Find(proto);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->block, i);
    EXPECT_EQ(found->epoch, 2);
    v1::LedgerRange bad = proto;
    bad.set_block_begin(proto.block_begin() + 1);
    EXPECT_EQ(blocks.Find(bad).status().code(), absl::StatusCode::kDataLoss);
    bad = proto;
    bad.set_end(proto.block_end() + 1);
    EXPECT_FALSE(blocks.Find(bad).ok());
    bad = proto;
    bad.set_block_end(proto.block_end() + 1);
    EXPECT_FALSE(blocks.Find(bad).ok());
    bad = proto;
    bad.set_shard("c");
    EXPECT_FALSE(blocks.Find(bad).ok());
    bad = proto;
    bad.set_epoch(-1);
    EXPECT_FALSE(blocks.Find(bad).ok());
  }
}

TEST(RangeQueueTest, ShufflesByEpochAndSeed) {
  const auto order = [](uint64_t seed) {
    RangeQueue queue(MakeBlocks({MakeShard("a", 0, 100)}, 5), {2, true, seed});
    return PopAll(queue);
  };
  const std::vector<std::string> one = order(1);
  EXPECT_EQ(one.size(), 40u);
  EXPECT_EQ(one, order(1));
  EXPECT_NE(one, order(2));
  const std::vector<std::string> first(one.begin(), one.begin() + 20);
  const std::vector<std::string> second(one.begin() + 20, one.end());
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()),
            std::set<std::string>(second.begin(), second.end()));
}

TEST(RangeQueueTest, ReturnedRangesComeFirst) {
  RangeQueue queue(MakeBlocks({MakeShard("a", 0, 40)}, 10), {});
  Range first = *queue.Pop(100);
  Range second = *queue.Pop(100);
  first.begin = 3;
  queue.PushFront(second);
  queue.PushFront(first);
  EXPECT_THAT(PopAll(queue),
              ElementsAre("a3-10", "a10-20", "a20-30", "a30-40"));
}

TEST(RangeQueueTest, SplitsKeepPositions) {
  RangeQueue queue(MakeBlocks({MakeShard("a", 0, 25)}, 10), {});
  EXPECT_THAT(PopAll(queue, 4),
              ElementsAre("a0-4", "a4-8", "a8-10", "a10-14", "a14-18", "a18-20",
                          "a20-24", "a24-25"));
}

TEST(RangeQueueTest, LoadLeavesOutWhatIsSetAside) {
  RangeQueue queue(MakeBlocks({MakeShard("a", 0, 30)}, 10), {});
  queue.SetAside(Range{0, 1, 10, 20});
  queue.SetAside(Range{0, 2, 24, 26});
  queue.SetAside(Range{0, 0, 0, 2});
  queue.Load(0, 1, {Range{0, 0, 0, 10}});
  EXPECT_THAT(PopAll(queue), ElementsAre("a2-10", "a20-24", "a26-30"));
  EXPECT_TRUE(queue.Empty());
  EXPECT_EQ(queue.num_set_aside(), 14);
}

TEST(RangeQueueTest, EmptyIsExactWhenTheLastBlockIsSetAside) {
  RangeQueue queue(MakeBlocks({MakeShard("a", 0, 20)}, 10), {2, false, 0});
  queue.SetAside(Range{1, 0, 0, 10});
  queue.SetAside(Range{1, 1, 10, 15});
  queue.SetAside(Range{1, 1, 15, 20});
  EXPECT_FALSE(queue.Empty());
  EXPECT_THAT(PopAll(queue), ElementsAre("a0-10", "a10-20"));
  EXPECT_TRUE(queue.Empty());
}

TEST(RangeQueueTest, ProgressResetsTheFailureCount) {
  RangeQueue queue(MakeBlocks({MakeShard("a", 0, 40)}, 40), {});
  EXPECT_EQ(queue.CountFailure(Range{0, 0, 10, 40}), 1);
  EXPECT_EQ(queue.CountFailure(Range{0, 0, 20, 40}), 1);
  EXPECT_EQ(queue.CountFailure(Range{0, 0, 10, 40}), 2);
  EXPECT_EQ(queue.CountFailure(Range{0, 0, 20, 40}), 3);
  EXPECT_EQ(queue.CountFailure(Range{0, 0, 0, 10}), 1);
  EXPECT_EQ(queue.CountFailure(Range{1, 0, 20, 40}), 1);
}

TEST(RangeQueueTest, NoDataIsEmptyEvenWhenEndless) {
  RangeQueue queue(MakeBlocks({}, 10), {0, true, 1});
  EXPECT_TRUE(queue.Empty());
  EXPECT_FALSE(queue.Pop(1).has_value());
}

}  // namespace
}  // namespace elasticdl::master
