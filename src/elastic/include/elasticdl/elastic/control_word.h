// The few numbers per rank that ride in every step's all-reduce, in front of
// the gradients: who put how many records into the step, and who wants what.
// Each member fills its own part and leaves the rest zero, so the sum is
// everybody's.
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
  // A callback wants no more training; an evaluation is asked for.
  bool stop = false;
  bool evaluate = false;
  // A task ends with this step and few are left here: the master should hear of
  // it soon.
  bool report_wanted = false;
};

// Floats of the control word of a world.
size_t ControlWordSize(int world_size);

// RESOURCE_EXHAUSTED when the word cannot hold it: more than kMaxWorldSize
// members, or more than kMaxRecordsPerStep records.
absl::Status CheckControlWord(const MemberWord& mine, int world_size);

// Writes the whole word: `mine` at its place, zeros elsewhere. Only what
// CheckControlWord lets pass.
void FillControlWord(const MemberWord& mine, int rank, int world_size,
                     float* word);

// What the sum says.
struct RoundSummary {
  std::vector<int64_t> records;  // By rank.
  int64_t total_records = 0;
  double mean_loss = 0;
  int switch_seen = 0;
  bool stop = false;
  bool evaluate = false;
  bool report_wanted = false;
};
RoundSummary ReadControlWord(const float* word, int world_size);

}  // namespace elasticdl::elastic
