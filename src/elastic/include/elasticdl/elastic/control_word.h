// The few numbers per rank that ride in every step's all-reduce, in front of
// the gradients: who put how many records into the step, and who wants what.
// Each member fills its own part and leaves the rest zero, so the sum is
// everybody's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace elasticdl::elastic {

// One member's part. Counts must be below 2^24, which a float holds exactly.
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

inline constexpr int64_t kMaxRecordsPerStep = (int64_t{1} << 24) - 1;
// Room for the word is kept beside the gradients: 24 KiB for so many members. A
// larger world would want another kind of word.
inline constexpr int kMaxWorldSize = 1024;

// Floats of the control word of a world.
size_t ControlWordSize(int world_size);

// Writes the whole word: `mine` at its place, zeros elsewhere.
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
