#include "catch_up.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "elasticdl/elastic/control_word.h"

namespace elasticdl::worker {
namespace {

// Rank 0 is level in every world in which others catch up.
constexpr int kDonor = 0;
// Of the time of a round: less than a fifth, because what is passed on also
// pushes other things out of the caches.
constexpr double kShare = 0.14;
// Before anything is measured.
constexpr double kFirstBytesPerSecond = 3e8;
// Less would be all latency, unless a bandwidth is asked for.
constexpr double kLeastBytes = 64 << 10;
// One call of the collective: bounds scratch memory.
constexpr size_t kCallBytes = 4 << 20;
// The newest measurement's weight in an average.
constexpr double kNew = 0.3;

void Average(double value, double& average) {
  average = average == 0 ? value : average + kNew * (value - average);
}

}  // namespace

void PieceSize::Add(absl::Duration round, absl::Duration passing,
                    double bytes) {
  Average(absl::ToDoubleSeconds(round), round_);
  const double seconds = absl::ToDoubleSeconds(passing);
  passing_ = seconds;
  if (seconds > 0 && bytes > 0) Average(bytes / seconds, bytes_per_second_);
}

double PieceSize::NextBytes() const {
  const double speed =
      bytes_per_second_ > 0 ? bytes_per_second_ : kFirstBytesPerSecond;
  const double bytes = std::max(kLeastBytes, kShare * round_ * speed);
  if (bandwidth_ <= 0) return bytes;
  return std::min(bytes, bandwidth_ * (round_ + passing_));
}

CatchUp::CatchUp(const Options& options, Replica& replica)
    : options_(options),
      replica_(replica),
      units_(replica.NumUnits()),
      grain_(1 + static_cast<int64_t>(units_) / elastic::kMostPiece),
      piece_size_(options.bandwidth) {
  // What is on a device is given as a whole.
  if (!replica.on_cpu()) return;
  bytes_ = replica.StateBytes();
}

bool CatchUp::IsLarge() const {
  return options_.least_bytes > 0 && bytes_ >= options_.least_bytes;
}

elastic::StateStream::Part CatchUp::part() const {
  return replica_.part().value_or(elastic::StateStream::Part());
}

void CatchUp::Forget() {
  stream_.reset();
  replica_.SetPart(std::nullopt);
}

double CatchUp::BytesPerUnit() const {
  return static_cast<double>(bytes_) / static_cast<double>(units_);
}

void CatchUp::EnterWorld(std::optional<elastic::StateStream> stream, int rank,
                         absl::Time now) {
  stream_ = std::move(stream);
  rank_ = rank;
  last_end_ = now;
  if (behind()) {
    replica_.SetPart(stream_->part(rank));
  } else {
    replica_.SetPart(std::nullopt);
  }
}

int CatchUp::NumTrainers(int size) const {
  return active() ? size - stream_->num_behind() : size;
}

int CatchUp::NumTrainersBefore(int rank) const {
  return active() ? rank - stream_->NumBehindBefore(rank) : rank;
}

int64_t CatchUp::NextPiece() const {
  if (!active() || rank_ != kDonor) return 0;
  const auto units =
      static_cast<int64_t>(piece_size_.NextBytes() / BytesPerUnit());
  return std::clamp<int64_t>(units / grain_, 1, elastic::kMostPiece);
}

absl::Status CatchUp::Pass(collective::Communicator& communicator,
                           int64_t piece, const Clock& clock) {
  const absl::Time begin = clock.Now();
  const auto most = static_cast<size_t>(piece * grain_);
  ELASTICDL_RETURN_IF_ERROR(PassUnits(communicator, most));
  const absl::Time end = clock.Now();
  // The last piece may be smaller than it was meant to be.
  if (!active()) return absl::OkStatus();
  piece_size_.Add(begin - std::exchange(last_end_, end), end - begin,
                  static_cast<double>(most) * BytesPerUnit());
  return absl::OkStatus();
}

absl::Status CatchUp::PassRest(collective::Communicator& communicator) {
  return PassUnits(communicator, std::numeric_limits<size_t>::max());
}

absl::Status CatchUp::PassUnits(collective::Communicator& communicator,
                                size_t most) {
  const bool was_behind = behind();
  const auto call = static_cast<size_t>(
      std::max(1.0, static_cast<double>(kCallBytes) / BytesPerUnit()));
  while (most > 0 && active()) {
    const elastic::StateStream::Range piece =
        stream_->Next(std::min(most, call));
    ELASTICDL_RETURN_IF_ERROR(Give(communicator, replica_.Units(piece)));
    // Only then is it counted: a transfer that breaks off leaves nothing.
    elastic::StateStream next = *stream_;
    if (!next.Passed(piece).empty()) {
      ELASTICDL_RETURN_IF_ERROR(Give(communicator, replica_.BufferBytes()));
    }
    stream_ = std::move(next);
    if (behind()) {
      replica_.SetPart(stream_->part(rank_));
    } else if (was_behind) {
      replica_.SetPart(std::nullopt);
    }
    ELASTICDL_RETURN_IF_ERROR(Failpoint(rank_ == kDonor ? "stream.give"
                                        : was_behind    ? "stream.take"
                                                        : "stream.watch"));
    most -= piece.size();
  }
  return absl::OkStatus();
}

absl::Status CatchUp::Give(collective::Communicator& communicator,
                           const std::vector<absl::Span<char>>& spans) {
  const bool in_place = rank_ == kDonor || behind();
  for (const absl::Span<char>& span : spans) {
    for (size_t done = 0; done < span.size(); done += kCallBytes) {
      const size_t bytes = std::min(kCallBytes, span.size() - done);
      if (!in_place) scratch_.resize(std::max(scratch_.size(), bytes));
      ELASTICDL_RETURN_IF_ERROR(communicator.Broadcast(
          in_place ? span.data() + done : scratch_.data(), bytes, kDonor,
          options_.timeout));
    }
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::worker
