// Sends the state to joiners, piece by piece, while the others train: after
// each round of a world, a piece of a ring follows
// (elasticdl/elastic/state_stream.h). docs/design/0010-join-without-a-pause.md.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/elastic/state_stream.h"
#include "replica.h"

namespace elasticdl::worker {

// How much may follow a round. Pure.
class PieceSize {
 public:
  // Bytes per second; 0 = only the share of the step's time counts.
  explicit PieceSize(double bandwidth) : bandwidth_(bandwidth) {}
  // A round took so long; then so many bytes were passed on in `passing`.
  void Add(absl::Duration round, absl::Duration passing, double bytes);
  double NextBytes() const;

 private:
  const double bandwidth_;
  // Averages, in seconds.
  double round_ = 0;
  double passing_ = 0;
  double bytes_per_second_ = 0;
};

// Runs on the training thread.
class CatchUp {
 public:
  struct Options {
    // A smaller state is given to joiners at once, while all stand still; 0 =
    // any is.
    int64_t least_bytes = 0;
    double bandwidth = 0;
    // For one piece.
    absl::Duration timeout = absl::Minutes(2);
  };
  // `replica` must outlive this.
  CatchUp(const Options& options, Replica& replica);

  // ---- before a world ----
  bool IsLarge() const;
  size_t units() const { return units_; }
  // What this member has, if it has no whole state.
  elastic::StateStream::Part part() const;
  // Nothing.
  void Forget();

  // ---- in a world ----
  // Nothing: all members are level.
  void EnterWorld(std::optional<elastic::StateStream> stream, int rank,
                  absl::Time now);
  void LeaveWorld() { stream_.reset(); }
  bool active() const { return stream_.has_value() && stream_->active(); }
  bool IsBehind(int rank) const { return active() && stream_->IsBehind(rank); }
  // This member.
  bool behind() const { return IsBehind(rank_); }
  // Members that train, of a world of `size`; those before a rank.
  int NumTrainers(int size) const;
  int NumTrainersBefore(int rank) const;

  // The donor: how much follows the next round.
  int64_t NextPiece() const;
  // Collective. A round is over at `now`; a piece follows, or the rest of the
  // ring. This member may be level afterwards, even after an error, which only
  // means that others did not receive their piece.
  absl::Status Pass(collective::Communicator& communicator, int64_t piece,
                    const Clock& clock);
  absl::Status PassRest(collective::Communicator& communicator);

 private:
  absl::Status PassUnits(collective::Communicator& communicator, size_t most);
  // All members get the bytes of rank 0, in place if they are behind.
  absl::Status Give(collective::Communicator& communicator,
                    const std::vector<absl::Span<char>>& spans);
  double BytesPerUnit() const;

  const Options options_;
  Replica& replica_;
  const size_t units_;
  int64_t bytes_ = 0;
  // Units in one step of the piece's size as the control word tells it.
  const int64_t grain_;
  int rank_ = 0;
  std::optional<elastic::StateStream> stream_;
  PieceSize piece_size_;
  absl::Time last_end_;
  // Where members that are level put pieces that they do not need.
  std::vector<char> scratch_;
};

}  // namespace elasticdl::worker
