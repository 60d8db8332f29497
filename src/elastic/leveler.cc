#include "elasticdl/elastic/leveler.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"

namespace elasticdl::elastic {
namespace {

// Broadcasts are split into pieces of this size, so that the collective's
// buffers need not hold a second copy of a big model.
constexpr size_t kPieceBytes = 8 << 20;
constexpr int64_t kMaxMetaBytes = 64 << 20;

struct Header {
  int64_t has_state = 0;
  int64_t lineage = 0;
  int64_t step = 0;
  uint64_t layout = 0;
  int64_t meta_bytes = 0;
  int64_t state_bytes = 0;
};

int64_t TotalBytes(const std::vector<absl::Span<char>>& spans) {
  int64_t total = 0;
  for (const auto& span : spans) total += static_cast<int64_t>(span.size());
  return total;
}

absl::StatusOr<int> FindDonor(const std::vector<Header>& headers) {
  int donor = -1;
  for (int rank = 0; rank < static_cast<int>(headers.size()); ++rank) {
    const Header& header = headers[rank];
    if (header.layout != headers[0].layout ||
        header.state_bytes != headers[0].state_bytes) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the models of rank 0 and rank ", rank,
          " differ in names, shapes or types; all workers must run the same "
          "model file with the same parameters"));
    }
    if (header.has_state == 0) continue;
    if (donor < 0 ||
        std::tie(header.lineage, header.step) >
            std::tie(headers[donor].lineage, headers[donor].step)) {
      donor = rank;
    }
  }
  if (donor < 0) {
    return absl::FailedPreconditionError(
        "no member of the world has a model to start from");
  }
  if (headers[donor].meta_bytes < 0 ||
      headers[donor].meta_bytes > kMaxMetaBytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", donor, " announces ", headers[donor].meta_bytes, " bytes"));
  }
  return donor;
}

// `moved` is called after each piece.
absl::Status BroadcastBytes(collective::Communicator& communicator, char* data,
                            size_t size, int root, absl::Duration timeout,
                            const std::function<void(size_t piece)>& moved) {
  for (size_t done = 0; done < size; done += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, size - done);
    ELASTICDL_RETURN_IF_ERROR(
        communicator.Broadcast(data + done, piece, root, timeout));
    ELASTICDL_RETURN_IF_ERROR(
        Failpoint(communicator.rank() == root ? "level.give" : "level.take"));
    moved(piece);
  }
  return absl::OkStatus();
}

// The donor sends from its own memory. The others receive into a separate copy,
// because a transfer that breaks must not leave half a state behind.
absl::Status MoveState(collective::Communicator& communicator,
                       const MemberState& state, int donor, bool take,
                       const LevelOptions& options) {
  const bool giving = communicator.rank() == donor;
  if (giving && state.fetch) ELASTICDL_RETURN_IF_ERROR(state.fetch());
  const int64_t total = TotalBytes(state.spans);
  std::vector<char> staging(giving ? 0 : static_cast<size_t>(total));
  int64_t bytes = 0;
  const auto moved = [&](size_t piece) {
    bytes += static_cast<int64_t>(piece);
    if (options.moved) options.moved(bytes, total);
  };
  size_t offset = 0;
  for (const absl::Span<char>& span : state.spans) {
    char* data = giving ? span.data() : staging.data() + offset;
    offset += span.size();
    ELASTICDL_RETURN_IF_ERROR(BroadcastBytes(communicator, data, span.size(),
                                             donor, options.timeout, moved));
  }
  if (!take) return absl::OkStatus();
  offset = 0;
  for (const absl::Span<char>& span : state.spans) {
    memcpy(span.data(), staging.data() + offset, span.size());
    offset += span.size();
  }
  return state.store ? state.store() : absl::OkStatus();
}

}  // namespace

absl::StatusOr<Levelled> BringLevel(collective::Communicator& communicator,
                                    const MemberState& state,
                                    const LevelOptions& options) {
  Header mine;
  mine.has_state = state.has_state ? 1 : 0;
  mine.lineage = state.lineage;
  mine.step = state.step;
  mine.layout = state.layout;
  mine.meta_bytes = static_cast<int64_t>(state.meta.size());
  mine.state_bytes = TotalBytes(state.spans);
  std::vector<Header> headers(static_cast<size_t>(communicator.size()));
  ELASTICDL_RETURN_IF_ERROR(communicator.AllGather(
      &mine, headers.data(), sizeof(Header), options.arrival_timeout));
  Levelled levelled;
  ELASTICDL_ASSIGN_OR_RETURN(levelled.donor, FindDonor(headers));
  const Header& donor = headers[static_cast<size_t>(levelled.donor)];
  levelled.lineage = donor.lineage;
  levelled.step = donor.step;
  levelled.meta = state.meta;
  levelled.meta.resize(static_cast<size_t>(donor.meta_bytes));
  ELASTICDL_RETURN_IF_ERROR(BroadcastBytes(communicator, levelled.meta.data(),
                                           levelled.meta.size(), levelled.donor,
                                           options.timeout, [](size_t) {}));
  const auto level = [&](const Header& header) {
    return header.has_state != 0 && header.lineage == donor.lineage &&
           header.step == donor.step;
  };
  if (!std::all_of(headers.begin(), headers.end(), level)) {
    levelled.received = !level(mine);
    levelled.bytes = mine.state_bytes;
    ELASTICDL_RETURN_IF_ERROR(MoveState(communicator, state, levelled.donor,
                                        levelled.received, options));
  }
  // One member reports to the master for all, so it must know that all of them
  // are done.
  levelled.world = communicator.Barrier(options.timeout);
  return levelled;
}

}  // namespace elasticdl::elastic
