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
  int64_t may_stream = 0;
  int64_t whole_only = 0;
  int64_t units = 0;
  int64_t part_begin = 0;
  int64_t part_have = 0;
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
        header.state_bytes != headers[0].state_bytes ||
        header.units != headers[0].units) {
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

absl::Status BroadcastBytes(collective::Communicator& communicator, char* data,
                            size_t size, int root, absl::Duration timeout) {
  for (size_t done = 0; done < size; done += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, size - done);
    ELASTICDL_RETURN_IF_ERROR(
        communicator.Broadcast(data + done, piece, root, timeout));
    ELASTICDL_RETURN_IF_ERROR(
        Failpoint(communicator.rank() == root ? "level.give" : "level.take"));
  }
  return absl::OkStatus();
}

bool IsLevel(const Header& header, const Header& donor) {
  return header.has_state != 0 && header.lineage == donor.lineage &&
         header.step == donor.step;
}

// It was in the donor's last step, which broke off for it. Its state counts
// until it has the donor's.
bool IsStraggler(const Header& header, const Header& donor) {
  return header.has_state != 0 && header.lineage == donor.lineage &&
         header.step + 1 == donor.step;
}

// Nothing: the state is to be copied at once.
std::optional<StateStream> MakeStream(const std::vector<Header>& headers,
                                      const Header& donor) {
  if (donor.may_stream == 0 || donor.units <= 0 ||
      !IsLevel(headers[0], donor)) {
    return std::nullopt;
  }
  StateStream::Parts parts;
  for (const Header& header : headers) {
    if (header.whole_only != 0) return std::nullopt;
    if (IsLevel(header, donor)) {
      parts.emplace_back();
      continue;
    }
    if (IsStraggler(header, donor)) return std::nullopt;
    StateStream::Part part;
    if (header.has_state == 0 && header.lineage == donor.lineage &&
        header.step == donor.step && header.part_begin >= 0 &&
        header.part_have >= 0) {
      part.begin = static_cast<size_t>(header.part_begin);
      part.have = static_cast<size_t>(header.part_have);
    }
    parts.emplace_back(part);
  }
  return StateStream(static_cast<size_t>(donor.units), std::move(parts));
}

// The donor sends from its own memory, and who has no state receives into its
// own. Who has one receives into a separate copy, because a transfer that
// breaks must not leave half a state behind.
absl::Status MoveState(collective::Communicator& communicator,
                       const MemberState& state, int donor, bool take,
                       const LevelOptions& options) {
  const bool giving = communicator.rank() == donor;
  const bool in_place = giving || (take && !state.has_state);
  if (giving && state.fetch) ELASTICDL_RETURN_IF_ERROR(state.fetch());
  if (in_place && take && state.overwrite) state.overwrite();
  const int64_t total = TotalBytes(state.spans);
  size_t largest = 0;
  for (const absl::Span<char>& span : state.spans) {
    largest = std::max(largest, std::min(span.size(), kPieceBytes));
  }
  // Who is level needs nothing of it, but the others need its help.
  const size_t room = take ? static_cast<size_t>(total) : largest;
  std::vector<char> staging(in_place ? 0 : room);
  int64_t bytes = 0;
  size_t offset = 0;
  for (const absl::Span<char>& span : state.spans) {
    for (size_t done = 0; done < span.size(); done += kPieceBytes) {
      const size_t piece = std::min(kPieceBytes, span.size() - done);
      char* data = in_place ? span.data() + done : staging.data() + offset;
      ELASTICDL_RETURN_IF_ERROR(
          BroadcastBytes(communicator, data, piece, donor, options.timeout));
      if (take && !in_place) offset += piece;
      bytes += static_cast<int64_t>(piece);
      if (options.moved) options.moved(bytes, total);
    }
  }
  if (!take) return absl::OkStatus();
  offset = 0;
  if (!in_place && state.overwrite) state.overwrite();
  for (const absl::Span<char>& span : state.spans) {
    if (in_place) break;
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
  mine.may_stream = state.may_stream ? 1 : 0;
  mine.whole_only = state.whole_only ? 1 : 0;
  mine.units = static_cast<int64_t>(state.units);
  mine.part_begin = static_cast<int64_t>(state.part.begin);
  mine.part_have = static_cast<int64_t>(state.part.have);
  std::vector<Header> headers(static_cast<size_t>(communicator.size()));
  ELASTICDL_RETURN_IF_ERROR(communicator.AllGather(
      &mine, headers.data(), sizeof(Header), options.arrival_timeout));
  Levelled levelled;
  ELASTICDL_ASSIGN_OR_RETURN(levelled.donor, FindDonor(headers));
  const Header& donor = headers[static_cast<size_t>(levelled.donor)];
  levelled.lineage = donor.lineage;
  levelled.step = donor.step;
  levelled.any_whole_only =
      std::any_of(headers.begin(), headers.end(),
                  [](const Header& header) { return header.whole_only != 0; });
  levelled.meta = state.meta;
  levelled.meta.resize(static_cast<size_t>(donor.meta_bytes));
  ELASTICDL_RETURN_IF_ERROR(BroadcastBytes(communicator, levelled.meta.data(),
                                           levelled.meta.size(), levelled.donor,
                                           options.timeout));
  const auto level = [&](const Header& header) {
    return IsLevel(header, donor);
  };
  if (!std::all_of(headers.begin(), headers.end(), level)) {
    levelled.stream = MakeStream(headers, donor);
    if (!levelled.stream.has_value()) {
      levelled.received = !level(mine);
      levelled.bytes = mine.state_bytes;
      ELASTICDL_RETURN_IF_ERROR(MoveState(communicator, state, levelled.donor,
                                          levelled.received, options));
    }
  }
  // One member reports to the master for all, so it must know that all of them
  // are done.
  levelled.world = communicator.Barrier(options.timeout);
  return levelled;
}

}  // namespace elasticdl::elastic
