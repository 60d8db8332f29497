// The order in which an epoch's records are read: a function of (seed, epoch,
// data) only. Master and worker compute it independently, so no list of indices
// is ever sent. The results are the same on every platform and standard
// library: we have our own generator, because std::shuffle's result is
// unspecified.
//
// A block is records [block_begin, block_end) of one shard. *Positions* of a
// block are the same numbers, block_begin .. block_end - 1: position p stands
// for record block_begin + Permutation(seed, n)[p - block_begin], n being the
// block's size. Ranges of positions are what tasks, commits and the ledger hold
// (v1::LedgerRange); each position of an epoch committed once means each record
// trained once.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace elasticdl::ledger {

// A permutation of 0 .. size - 1. The result for given arguments must never
// change, because ledgers in checkpoints depend on it. Seed 0 is the identity.
std::vector<uint32_t> Permutation(uint64_t seed, uint32_t size);

// The seed of a block's permutation in an epoch (v1::Task.shuffle_seed). Never
// 0.
uint64_t BlockSeed(uint64_t seed, int32_t epoch, absl::string_view shard,
                   int64_t block_begin);

// The seed of the permutation of an epoch's blocks. Never 0.
uint64_t EpochSeed(uint64_t seed, int32_t epoch);

// The records at positions [begin, end) of the block [block_begin, block_end),
// in training order. `shuffle_seed` is v1::Task.shuffle_seed; 0 gives begin ..
// end - 1. Requires block_begin <= begin <= end <= block_end and fewer than
// 2^32 records.
std::vector<int64_t> RecordsOf(uint64_t shuffle_seed, int64_t block_begin,
                               int64_t block_end, int64_t begin, int64_t end);

}  // namespace elasticdl::ledger
