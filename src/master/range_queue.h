// The ranges of a data set that are still to be granted: a cursor over the
// (shuffled) blocks of an epoch, and in front of it the returned ranges.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/v1/journal.pb.h"
#include "elasticdl/v1/ledger.pb.h"

namespace elasticdl::master {

// Positions [begin, end) of one block in one epoch. `block` counts the blocks
// of the data set in file order.
struct Range {
  int32_t epoch = 0;
  int64_t block = 0;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

v1::TaskState::Range ToProto(const Range& range);

// "'name' [begin, end)", for messages.
std::string Describe(const v1::LedgerShard& shard);

// Thread-compatible. The shards of a data set cut into blocks of
// records_per_block; a block never crosses a shard, a shard's last one may be
// short.
class BlockIndex {
 public:
  struct Block {
    const v1::LedgerShard* shard = nullptr;
    int64_t begin = 0;
    int64_t end = 0;
  };

  // Sorts the shards by (name, begin) and leaves out empty ones.
  // INVALID_ARGUMENT when shards overlap or end before they begin.
  static absl::StatusOr<BlockIndex> Create(std::vector<v1::LedgerShard> shards,
                                           int64_t records_per_block);

  const std::vector<v1::LedgerShard>& shards() const { return shards_; }
  int64_t records_per_block() const { return records_per_block_; }
  int64_t num_blocks() const { return first_block_.back(); }
  int64_t num_records() const { return num_records_; }
  // 0 <= block < num_blocks().
  Block at(int64_t block) const;
  // The inverse of at(). DATA_LOSS when the range is not inside one block.
  absl::StatusOr<Range> Find(const v1::LedgerRange& range) const;
  v1::LedgerRange ToProto(const Range& range) const;
  // Also DATA_LOSS when there is no such block.
  absl::StatusOr<Range> Find(const v1::TaskState::Range& range) const;

 private:
  std::vector<v1::LedgerShard> shards_;
  // The number of the first block of each shard; then the number of blocks.
  std::vector<int64_t> first_block_ = {0};
  int64_t records_per_block_ = 1;
  int64_t num_records_ = 0;
};

// Thread-compatible. Memory: 4 bytes per block of the epoch when shuffled.
class RangeQueue {
 public:
  struct Options {
    int32_t num_epochs = 1;  // <= 0: endless.
    bool shuffle = false;
    uint64_t seed = 0;
  };

  RangeQueue(BlockIndex blocks, const Options& options);

  // The next range, of at most max_records (the rest stays first in the queue);
  // nullopt when Empty().
  std::optional<Range> Pop(int64_t max_records);
  bool Empty() const { return returned_.empty() && CursorAtEnd(); }

  // Returns a range: it is granted next.
  void PushFront(const Range& range);

  // A failure at range.begin. Returns the number of failures without progress:
  // a failure later in the range counts from 1 again. Load keeps the counts.
  int CountFailure(const Range& range);
  // Quarantines a range that is not in the queue: it is never granted again.
  void SetAside(const Range& range);
  const std::vector<Range>& set_aside() const { return set_aside_; }
  int64_t num_set_aside() const;  // Records.

  // Saves and restores everything. DATA_LOSS for ranges outside the blocks.
  v1::TaskState::Queue State() const;
  absl::Status LoadState(const v1::TaskState::Queue& state);

  // Replaces the cursor and the returned ranges; quarantined ranges stay.
  void Load(int32_t epoch, int64_t next_block, const std::vector<Range>& due);

  const BlockIndex& blocks() const { return blocks_; }
  const Options& options() const { return options_; }
  int32_t epoch() const { return epoch_; }
  int64_t next_block() const { return next_block_; }
  const std::deque<Range>& returned() const { return returned_; }
  bool InLastEpoch() const;
  // Of the current epoch, and what was returned.
  int64_t NumRangesLeft() const;
  int64_t NumRecordsLeft() const;
  // The first `place` blocks of the current epoch, in its order.
  std::vector<int64_t> BlocksBefore(int64_t place) const;
  // For v1::Task.shuffle_seed; 0 without shuffling.
  uint64_t ShuffleSeed(const Range& range) const;

 private:
  bool CursorAtEnd() const;
  void StartEpoch(int32_t epoch, int64_t next_block);
  int64_t BlockAt(int64_t place) const;
  // The parts of the range that are not quarantined.
  std::vector<Range> Remaining(const Range& range) const;
  Range WholeBlock(int64_t block) const;
  // Moves the cursor past blocks that are quarantined as a whole, so that
  // Empty() is exact.
  void SkipSetAside();

  BlockIndex blocks_;
  Options options_;
  int32_t epoch_ = 0;
  int64_t next_block_ = 0;       // Place in order_.
  int64_t records_left_ = 0;     // Of the blocks from next_block_ on.
  std::vector<uint32_t> order_;  // Of this epoch's blocks; empty = identity.
  std::deque<Range> returned_;
  std::vector<Range> set_aside_;
  // (epoch, block) -> position -> failures there.
  std::map<std::pair<int32_t, int64_t>, std::map<int64_t, int>> failures_;
};

}  // namespace elasticdl::master
