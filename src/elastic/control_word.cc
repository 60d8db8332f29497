#include "elasticdl/elastic/control_word.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/check.h"

namespace elasticdl::elastic {
namespace {

enum Field : size_t {
  kRecords,
  kLossSum,
  kSwitchSeen,
  kStop,
  kEvaluate,
  kReportWanted,
  kPiece,
  kRound,
  kNumFields,
};

// Clamps values that no member can have written (negative, too large, NaN), so
// that the sum does not overflow.
int64_t ToCount(float records) {
  if (!(records > 0)) return 0;
  return std::llround(
      std::min(records, static_cast<float>(kMaxRecordsPerStep)));
}

// Never 0, which is what a member that is not there writes.
float RoundMark(int64_t round) {
  constexpr int64_t kMarks = int64_t{1} << 20;
  return static_cast<float>(1 + round % kMarks);
}

}  // namespace

size_t ControlWordSize(int world_size) {
  return kNumFields * static_cast<size_t>(world_size);
}

size_t LossSumIndex(int rank) {
  return kNumFields * static_cast<size_t>(rank) + kLossSum;
}

absl::Status CheckControlWord(const MemberWord& mine, int world_size) {
  if (world_size > kMaxWorldSize) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a world of ", world_size, " workers; at most ",
                     kMaxWorldSize, " can train together (--max_workers)"));
  }
  if (mine.records > kMaxRecordsPerStep) {
    return absl::ResourceExhaustedError(absl::StrCat(
        mine.records, " records of one worker in one step; at most ",
        kMaxRecordsPerStep, " can be counted (--minibatch_size, ",
        "--global_batch_size)"));
  }
  return absl::OkStatus();
}

void FillControlWord(const MemberWord& mine, int rank, int world_size,
                     float* word) {
  ELASTICDL_CHECK(CheckControlWord(mine, world_size).ok());
  ELASTICDL_CHECK(rank >= 0 && rank < world_size);
  std::fill_n(word, ControlWordSize(world_size), 0.0F);
  float* fields = word + kNumFields * static_cast<size_t>(rank);
  fields[kRecords] = static_cast<float>(mine.records);
  fields[kLossSum] = mine.loss_sum;
  fields[kSwitchSeen] = mine.switch_seen ? 1 : 0;
  fields[kStop] = mine.stop ? 1 : 0;
  fields[kEvaluate] = mine.evaluate ? 1 : 0;
  fields[kReportWanted] = mine.report_wanted ? 1 : 0;
  fields[kPiece] = static_cast<float>(std::min(mine.piece, kMostPiece));
  fields[kRound] = RoundMark(mine.round);
}

absl::Status CheckRound(const float* word, int world_size, int64_t round) {
  double sum = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    sum += word[kNumFields * static_cast<size_t>(rank) + kRound];
  }
  // What is no number is not equal either.
  if (sum == static_cast<double>(world_size) * RoundMark(round)) {
    return absl::OkStatus();
  }
  return absl::AbortedError(
      absl::StrCat("the sum of round ", round, " lacks a member's part"));
}

RoundSummary ReadControlWord(const float* word, int world_size) {
  RoundSummary summary;
  double loss_sum = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    const float* fields = word + kNumFields * static_cast<size_t>(rank);
    const int64_t records = ToCount(fields[kRecords]);
    summary.records.push_back(records);
    summary.total_records += records;
    loss_sum += fields[kLossSum];
    summary.switch_seen += fields[kSwitchSeen] != 0 ? 1 : 0;
    summary.stop |= fields[kStop] != 0;
    summary.evaluate |= fields[kEvaluate] != 0;
    summary.report_wanted |= fields[kReportWanted] != 0;
    summary.piece = std::max(summary.piece, ToCount(fields[kPiece]));
  }
  if (summary.total_records > 0) {
    summary.mean_loss = loss_sum / static_cast<double>(summary.total_records);
  }
  return summary;
}

}  // namespace elasticdl::elastic
