// The control word: a few numbers per rank that travel with the gradients in
// every all-reduce. They say how many records each member put into the step,
// and what it asks for. Each member fills its own part and leaves the rest
// zero, so the sum contains all parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "elasticdl/common/limits.h"

namespace elasticdl::elastic {

// One member's part.
struct MemberWord {
  int64_t records = 0;
  // Loss times records.
  float loss_sum = 0;
  bool switch_seen = false;
  // A callback wants to stop training; an evaluation is requested.
  bool stop = false;
  bool evaluate = false;
  // A task ends with this step and this member has few left: the master should
  // be told soon.
  bool report_wanted = false;
  // How much of the state follows this round, for members that catch up
  // (state_stream.h). Only the donor says it. At most kMostPiece.
  int64_t piece = 0;
  // Which round of its world this is, counted from 1.
  int64_t round = 0;
};
// Floats count exactly up to here.
inline constexpr int64_t kMostPiece = int64_t{1} << 24;

// The size of a world's control word, in floats.
size_t ControlWordSize(int world_size);

// RESOURCE_EXHAUSTED when the word cannot hold it: more than kMaxWorldSize
// members, or more than kMaxRecordsPerStep records.
absl::Status CheckControlWord(const MemberWord& mine, int world_size);

// Writes the whole word: `mine` at its place, zeros elsewhere. `mine` must have
// passed CheckControlWord.
void FillControlWord(const MemberWord& mine, int rank, int world_size,
                     float* word);

// ABORTED unless the summed word has the part of every member in this round. A
// member that leaves NCCL in the middle of a sum makes the others add up what
// was in its buffers before.
absl::Status CheckRound(const float* word, int world_size, int64_t round);

// Where `loss_sum` of a rank is in the word, for a member whose loss is known
// only to its device.
size_t LossSumIndex(int rank);

// The content of the summed word.
struct RoundSummary {
  std::vector<int64_t> records;  // By rank.
  int64_t total_records = 0;
  double mean_loss = 0;
  int switch_seen = 0;
  bool stop = false;
  bool evaluate = false;
  bool report_wanted = false;
  int64_t piece = 0;
};
RoundSummary ReadControlWord(const float* word, int world_size);

}  // namespace elasticdl::elastic
