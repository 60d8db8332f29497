// The model's first values, new or from a checkpoint, and reading everything
// for a checkpoint.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lane.h"
#include "elasticdl/common/status.h"
#include "elasticdl/ps/client.h"

namespace elasticdl::ps {
namespace {

// Of all answers that are in memory at a time, unless one bucket has more.
constexpr uint64_t kReadBytes = uint64_t{64} << 20;
constexpr uint64_t kLeastReadBytes = 1 << 20;
// Of one entry in a server's log; while it is written, nobody else is served.
constexpr size_t kRestoreBytes = size_t{32} << 20;

absl::Status WrongSize(size_t server, size_t bytes, size_t expected) {
  return absl::InternalError(absl::StrCat("parameter server ", server,
                                          " answered with ", bytes,
                                          " bytes instead of ", expected));
}

}  // namespace

// ---- first values ----

absl::Status Client::SetInitialValues(const float* values) {
  return SetInitialValues(values, {}, 0);
}

absl::Status Client::CheckSlots(size_t count) const {
  if (count == 0 || count == slots_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      count, " slots for ", definition_.optimizer(), ", which has ", slots_));
}

absl::Status Client::SetInitialValues(const float* values,
                                      absl::Span<const float* const> slots,
                                      int64_t version) {
  ELASTICDL_RETURN_IF_ERROR(CheckSlots(slots.size()));
  // Many workers start at once, and the values may be large.
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<v1::PsReply> replies,
                             Status(/*digest=*/false));
  std::vector<const float*> arrays = {values};
  arrays.insert(arrays.end(), slots.begin(), slots.end());
  std::vector<Call> calls = MakeCalls();
  for (size_t i = 0; i < calls.size(); ++i) {
    calls[i].done = replies[i].status().initialized();
    v1::PsInitialValues& entry =
        *calls[i].request.mutable_entry()->mutable_initial_values();
    entry.set_map_version(map_.version());
    entry.set_slots(!slots.empty());
    entry.set_version(version);
    for (const float* array : arrays) {
      for (const DenseSlice& slice : lanes_[i]->slices) {
        calls[i].payload.push_back(
            {const_cast<float*>(array + slice.offset),
             static_cast<size_t>(slice.size) * sizeof(float)});
      }
    }
  }
  return Run(calls);
}

absl::Status Client::RestoreRows(int64_t version, uint32_t table,
                                 absl::Span<const int64_t> ids,
                                 const void* values,
                                 absl::Span<const void* const> slots,
                                 const void* ranks) {
  if (table >= static_cast<uint32_t>(definition_.tables_size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("restore rows of table number ", table, " of ",
                     definition_.tables_size()));
  }
  ELASTICDL_RETURN_IF_ERROR(CheckSlots(slots.size()));
  const size_t bytes =
      static_cast<size_t>(definition_.tables(static_cast<int>(table)).dim()) *
      sizeof(float);
  const size_t rows_at_a_time =
      std::max<size_t>(1, kRestoreBytes / (bytes * (1 + slots.size())));
  for (size_t from = 0; from < ids.size(); from += rows_at_a_time) {
    std::vector<const char*> some;
    for (const void* slot : slots) {
      some.push_back(static_cast<const char*>(slot) + from * bytes);
    }
    const auto* rank = static_cast<const char*>(ranks);
    if (rank != nullptr) rank += from * sizeof(int64_t);
    ELASTICDL_RETURN_IF_ERROR(RestoreSome(
        version, table, ids.subspan(from, rows_at_a_time),
        static_cast<const char*>(values) + from * bytes, some, rank));
  }
  return absl::OkStatus();
}

absl::Status Client::RestoreSome(int64_t version, uint32_t table,
                                 absl::Span<const int64_t> ids,
                                 const char* values,
                                 const std::vector<const char*>& slots,
                                 const char* ranks) {
  const auto dim =
      static_cast<size_t>(definition_.tables(static_cast<int>(table)).dim());
  std::vector<std::vector<uint32_t>> positions;
  Split(table, ids, positions);
  std::vector<const char*> arrays = {values};
  arrays.insert(arrays.end(), slots.begin(), slots.end());
  std::vector<Call> calls = MakeCalls();
  for (size_t i = 0; i < calls.size(); ++i) {
    Call& call = calls[i];
    call.done = positions[i].empty();
    if (call.done) continue;
    v1::PsRestoreRows& entry =
        *call.request.mutable_entry()->mutable_restore_rows();
    entry.set_map_version(map_.version());
    entry.set_version(version);
    entry.set_table(table);
    entry.set_rows(positions[i].size());
    entry.set_slots(!slots.empty());
    entry.set_ranks(ranks != nullptr);
    std::vector<int64_t>& mine = call.ids.emplace_back();
    mine.reserve(positions[i].size() * (ranks == nullptr ? 1 : 2));
    for (const uint32_t position : positions[i]) mine.push_back(ids[position]);
    for (const uint32_t position : positions[i]) {
      if (ranks == nullptr) break;
      int64_t rank = 0;
      std::memcpy(&rank, ranks + position * sizeof(rank), sizeof(rank));
      mine.push_back(rank);
    }
    std::vector<float>& floats =
        call.floats.emplace_back(positions[i].size() * dim * arrays.size());
    float* to = floats.data();
    for (const char* array : arrays) {
      for (const uint32_t position : positions[i]) {
        std::memcpy(to, array + position * dim * sizeof(float),
                    dim * sizeof(float));
        to += dim;
      }
    }
    call.payload = {{mine.data(), mine.size() * sizeof(int64_t)},
                    {floats.data(), floats.size() * sizeof(float)}};
  }
  return Run(calls);
}

// ---- reading ----

absl::StatusOr<int64_t> Client::CommonVersion(
    const std::vector<Call>& calls) const {
  for (size_t i = 1; i < calls.size(); ++i) {
    if (versions_may_differ_ ||
        calls[i].reply.version() == calls[0].reply.version()) {
      continue;
    }
    return absl::AbortedError(absl::StrCat(
        "parameter server 0 has version ", calls[0].reply.version(),
        ", parameter server ", i, " version ", calls[i].reply.version()));
  }
  return calls[0].reply.version();
}

absl::StatusOr<int64_t> Client::ReadDense(
    std::vector<std::vector<float>>& arrays) {
  int64_t version = 0;
  ELASTICDL_RETURN_IF_ERROR(WithMap([&]() -> absl::Status {
    ELASTICDL_ASSIGN_OR_RETURN(version, ReadDenseOnce(arrays));
    return absl::OkStatus();
  }));
  return version;
}

absl::StatusOr<int64_t> Client::ReadDenseOnce(
    std::vector<std::vector<float>>& arrays) {
  std::vector<Call> calls = MakeCalls();
  for (Call& call : calls) {
    call.request.mutable_read()->set_map_version(map_.version());
  }
  ELASTICDL_RETURN_IF_ERROR(Run(calls));
  ELASTICDL_ASSIGN_OR_RETURN(const int64_t version, CommonVersion(calls));
  std::vector<size_t> sizes;
  size_t all = 0;
  for (const auto& lane : lanes_) {
    size_t values = 0;
    for (const DenseSlice& slice : lane->slices) {
      values += static_cast<size_t>(slice.size);
    }
    all += values;
    const size_t expected = values * (1 + slots_) * sizeof(float);
    if (lane->answer.size() != expected) {
      return WrongSize(sizes.size(), lane->answer.size(), expected);
    }
    sizes.push_back(values);
  }
  arrays.assign(1 + slots_, std::vector<float>(all));
  for (const auto& lane : lanes_) {
    const char* from = lane->answer.data();
    for (std::vector<float>& array : arrays) {
      for (const DenseSlice& slice : lane->slices) {
        const size_t bytes = static_cast<size_t>(slice.size) * sizeof(float);
        std::memcpy(array.data() + slice.offset, from, bytes);
        from += bytes;
      }
    }
    lane->answer.Trim();
  }
  return version;
}

absl::Status Client::HandOver(size_t server, uint32_t table,
                              const v1::PsReply& reply, const RowSink& sink) {
  const uint64_t rows = reply.rows();
  Buffer& answer = lanes_[server]->answer;
  const auto dim =
      static_cast<size_t>(definition_.tables(static_cast<int>(table)).dim());
  const size_t numbers = reply.ranks() ? 2 : 1;
  const size_t row_bytes =
      numbers * sizeof(int64_t) + dim * (1 + slots_) * sizeof(float);
  if (answer.size() % row_bytes != 0 || answer.size() / row_bytes != rows) {
    return WrongSize(server, answer.size(), rows * row_bytes);
  }
  if (rows == 0) return absl::OkStatus();
  const auto* ids = reinterpret_cast<const int64_t*>(answer.data());
  const auto* values = reinterpret_cast<const float*>(ids + numbers * rows);
  std::vector<const float*> slots;
  for (size_t s = 1; s <= slots_; ++s) {
    slots.push_back(values + s * rows * dim);
  }
  ELASTICDL_RETURN_IF_ERROR(
      sink({ids, rows}, values, slots, {ids + rows, (numbers - 1) * rows}));
  answer.Trim();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Client::ReadTable(uint32_t table, const RowSink& sink) {
  if (table >= static_cast<uint32_t>(definition_.tables_size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "read table number ", table, " of ", definition_.tables_size()));
  }
  int64_t version = -1;
  std::vector<int32_t> next(lanes_.size(), 0);
  std::vector<Call> calls = MakeCalls();
  const auto is_read = [](int32_t bucket) { return bucket == kBuckets; };
  while (!std::all_of(next.begin(), next.end(), is_read)) {
    for (size_t i = 0; i < calls.size(); ++i) {
      calls[i].done = is_read(next[i]);
      if (calls[i].done) continue;
      v1::PsRead& read = *calls[i].request.mutable_read();
      read.set_map_version(map_.version());
      read.mutable_rows()->set_table(table);
      read.mutable_rows()->set_begin(next[i]);
      read.mutable_rows()->set_max_bytes(
          std::max(kLeastReadBytes, kReadBytes / calls.size()));
    }
    const absl::Status ran = Run(calls);
    if (absl::IsFailedPrecondition(ran) && TakeNewerMap()) {
      if (version >= 0) {
        return absl::AbortedError("buckets moved while they were read");
      }
      next.assign(lanes_.size(), 0);
      calls = MakeCalls();
      continue;
    }
    ELASTICDL_RETURN_IF_ERROR(ran);
    // A server that has been read to its end keeps its last answer.
    ELASTICDL_ASSIGN_OR_RETURN(const int64_t now, CommonVersion(calls));
    if (version >= 0 && now != version) {
      return absl::AbortedError(absl::StrCat("version ", version, " became ",
                                             now, " while it was read"));
    }
    version = now;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (is_read(next[i])) continue;
      const v1::PsReply& reply = calls[i].reply;
      if (reply.next_bucket() <= next[i] || reply.next_bucket() > kBuckets) {
        return absl::InternalError(
            absl::StrCat("parameter server ", i, " went on from bucket ",
                         next[i], " to ", reply.next_bucket()));
      }
      next[i] = reply.next_bucket();
      ELASTICDL_RETURN_IF_ERROR(HandOver(i, table, reply, sink));
    }
  }
  return version;
}

}  // namespace elasticdl::ps
