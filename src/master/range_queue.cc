#include "range_queue.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/check.h"
#include "elasticdl/ledger.h"

namespace elasticdl::master {
namespace {

// Orders of blocks and of positions are 32-bit permutations.
constexpr int64_t kMaxBlocks = std::numeric_limits<uint32_t>::max();

bool SameBlock(const Range& a, const Range& b) {
  return a.epoch == b.epoch && a.block == b.block;
}

}  // namespace

std::string Describe(const v1::LedgerShard& shard) {
  return absl::StrCat("'", shard.name(), "' [", shard.begin(), ", ",
                      shard.end(), ")");
}

absl::StatusOr<BlockIndex> BlockIndex::Create(
    std::vector<v1::LedgerShard> shards, int64_t records_per_block) {
  if (records_per_block <= 0 || records_per_block > kMaxBlocks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "records per task is ", records_per_block, ", not in [1, 2^32)"));
  }
  std::sort(shards.begin(), shards.end(), [](const auto& a, const auto& b) {
    return std::forward_as_tuple(a.name(), a.begin(), a.end()) <
           std::forward_as_tuple(b.name(), b.begin(), b.end());
  });
  BlockIndex index;
  index.records_per_block_ = records_per_block;
  for (v1::LedgerShard& shard : shards) {
    if (shard.begin() < 0 || shard.end() < shard.begin()) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard ", Describe(shard), " is not a range"));
    }
    const int64_t size = shard.end() - shard.begin();
    if (size == 0) continue;
    if (!index.shards_.empty() && index.shards_.back().name() == shard.name() &&
        index.shards_.back().end() > shard.begin()) {
      return absl::InvalidArgumentError(
          absl::StrCat("shards ", Describe(index.shards_.back()), " and ",
                       Describe(shard), " overlap"));
    }
    const int64_t blocks = (size - 1) / records_per_block + 1;
    index.first_block_.push_back(index.num_blocks() + blocks);
    index.num_records_ += size;
    index.shards_.push_back(std::move(shard));
    if (index.num_blocks() > kMaxBlocks) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than ", kMaxBlocks, " tasks of ",
                       records_per_block, " records; make tasks larger"));
    }
  }
  return index;
}

BlockIndex::Block BlockIndex::at(int64_t block) const {
  ELASTICDL_CHECK(block >= 0 && block < num_blocks());
  const auto after =
      std::upper_bound(first_block_.begin(), first_block_.end(), block);
  const size_t i = after - first_block_.begin() - 1;
  Block result;
  result.shard = &shards_[i];
  result.begin =
      result.shard->begin() + (block - first_block_[i]) * records_per_block_;
  result.end = std::min(result.begin + records_per_block_, result.shard->end());
  return result;
}

absl::StatusOr<Range> BlockIndex::Find(const v1::LedgerRange& range) const {
  const auto bad = [&range](absl::string_view why) {
    return absl::DataLossError(absl::StrCat(
        "ledger range ", range.begin(), "-", range.end(), " of block ",
        range.block_begin(), "-", range.block_end(), " of shard '",
        range.shard(), "', epoch ", range.epoch(), ": ", why));
  };
  // The last shard that begins at or before the block.
  const auto after = std::upper_bound(
      shards_.begin(), shards_.end(), range,
      [](const v1::LedgerRange& r, const v1::LedgerShard& shard) {
        return std::forward_as_tuple(r.shard(), r.block_begin()) <
               std::forward_as_tuple(shard.name(), shard.begin());
      });
  if (after == shards_.begin()) return bad("no such shard");
  const v1::LedgerShard& shard = *(after - 1);
  if (shard.name() != range.shard() || range.block_begin() >= shard.end()) {
    return bad("no such shard");
  }
  const int64_t offset = range.block_begin() - shard.begin();
  if (offset % records_per_block_ != 0) return bad("no such block");
  Range result;
  result.epoch = range.epoch();
  result.block =
      first_block_[&shard - shards_.data()] + offset / records_per_block_;
  result.begin = range.begin();
  result.end = range.end();
  const Block block = at(result.block);
  if (block.end != range.block_end()) return bad("no such block");
  if (result.epoch < 0 || result.begin < block.begin ||
      result.begin >= result.end || result.end > block.end) {
    return bad("not a part of the block");
  }
  return result;
}

v1::LedgerRange BlockIndex::ToProto(const Range& range) const {
  const Block block = at(range.block);
  v1::LedgerRange result;
  result.set_shard(block.shard->name());
  result.set_block_begin(block.begin);
  result.set_block_end(block.end);
  result.set_begin(range.begin);
  result.set_end(range.end);
  result.set_epoch(range.epoch);
  return result;
}

RangeQueue::RangeQueue(BlockIndex blocks, const Options& options)
    : blocks_(std::move(blocks)), options_(options) {
  StartEpoch(0, 0);
}

bool RangeQueue::InLastEpoch() const {
  return options_.num_epochs > 0 && epoch_ + 1 >= options_.num_epochs;
}

bool RangeQueue::CursorAtEnd() const {
  if (blocks_.num_blocks() == 0) return true;
  if (options_.num_epochs > 0 && epoch_ >= options_.num_epochs) return true;
  return next_block_ == blocks_.num_blocks() && InLastEpoch();
}

void RangeQueue::StartEpoch(int32_t epoch, int64_t next_block) {
  epoch_ = epoch;
  next_block_ = next_block;
  order_.clear();
  if (options_.shuffle) {
    order_ = ledger::Permutation(ledger::EpochSeed(options_.seed, epoch),
                                 static_cast<uint32_t>(blocks_.num_blocks()));
  }
  records_left_ = blocks_.num_records();
  for (int64_t i = 0; i < next_block; ++i) {
    records_left_ -= WholeBlock(BlockAt(i)).size();
  }
}

int64_t RangeQueue::BlockAt(int64_t place) const {
  return order_.empty() ? place : order_[place];
}

Range RangeQueue::WholeBlock(int64_t block) const {
  const BlockIndex::Block b = blocks_.at(block);
  return Range{epoch_, block, b.begin, b.end};
}

std::optional<Range> RangeQueue::Pop(int64_t max_records) {
  ELASTICDL_CHECK(max_records > 0);
  if (Empty()) return std::nullopt;
  if (returned_.empty()) {
    if (next_block_ == blocks_.num_blocks()) StartEpoch(epoch_ + 1, 0);
    const Range block = WholeBlock(BlockAt(next_block_));
    ++next_block_;
    records_left_ -= block.size();
    for (const Range& part : Remaining(block)) returned_.push_back(part);
    SkipSetAside();
  }
  ELASTICDL_CHECK(!returned_.empty());
  Range range = returned_.front();
  returned_.pop_front();
  if (range.size() > max_records) {
    Range rest = range;
    rest.begin = range.end = range.begin + max_records;
    returned_.push_front(rest);
  }
  return range;
}

void RangeQueue::PushFront(const Range& range) {
  if (range.size() > 0) returned_.push_front(range);
}

int RangeQueue::CountFailure(const Range& range) {
  std::map<int64_t, int>& at = failures_[{range.epoch, range.block}];
  // An earlier position in the same range than at the last failure is the same
  // failure with less progress committed (or after a rollback).
  auto it = at.lower_bound(range.end);
  if (it != at.begin() && std::prev(it)->first >= range.begin) {
    return ++std::prev(it)->second;
  }
  return at[range.begin] = 1;
}

void RangeQueue::SetAside(const Range& range) {
  for (const Range& part : Remaining(range)) set_aside_.push_back(part);
  SkipSetAside();
}

int64_t RangeQueue::num_set_aside() const {
  int64_t records = 0;
  for (const Range& range : set_aside_) records += range.size();
  return records;
}

void RangeQueue::Load(int32_t epoch, int64_t next_block,
                      const std::vector<Range>& due) {
  StartEpoch(epoch, next_block);
  returned_.clear();
  for (const Range& range : due) {
    for (const Range& part : Remaining(range)) returned_.push_back(part);
  }
  SkipSetAside();
}

std::vector<Range> RangeQueue::Remaining(const Range& range) const {
  std::vector<Range> parts = {range};
  for (const Range& gone : set_aside_) {
    if (!SameBlock(gone, range)) continue;
    std::vector<Range> left;
    for (const Range& part : parts) {
      Range before = part;
      before.end = std::min(part.end, gone.begin);
      Range after = part;
      after.begin = std::max(part.begin, gone.end);
      // Disjoint from `gone`: one of the two is the part itself.
      if (before.size() > 0) left.push_back(before);
      if (after.size() > 0) left.push_back(after);
    }
    parts = std::move(left);
  }
  return parts;
}

void RangeQueue::SkipSetAside() {
  while (!CursorAtEnd() && !set_aside_.empty()) {
    if (next_block_ == blocks_.num_blocks()) {
      const bool any = std::any_of(
          set_aside_.begin(), set_aside_.end(),
          [this](const Range& range) { return range.epoch == epoch_ + 1; });
      if (!any) return;
      StartEpoch(epoch_ + 1, 0);
    }
    const Range block = WholeBlock(BlockAt(next_block_));
    if (!Remaining(block).empty()) return;
    ++next_block_;
    records_left_ -= block.size();
  }
}

int64_t RangeQueue::NumRangesLeft() const {
  return blocks_.num_blocks() - next_block_ +
         static_cast<int64_t>(returned_.size());
}

int64_t RangeQueue::NumRecordsLeft() const {
  int64_t records = records_left_;
  for (const Range& range : returned_) records += range.size();
  return records;
}

std::vector<int64_t> RangeQueue::BlocksBefore(int64_t place) const {
  std::vector<int64_t> blocks;
  for (int64_t i = 0; i < place; ++i) blocks.push_back(BlockAt(i));
  return blocks;
}

uint64_t RangeQueue::ShuffleSeed(const Range& range) const {
  if (!options_.shuffle) return 0;
  const BlockIndex::Block block = blocks_.at(range.block);
  return ledger::BlockSeed(options_.seed, range.epoch, block.shard->name(),
                           block.begin);
}

}  // namespace elasticdl::master
