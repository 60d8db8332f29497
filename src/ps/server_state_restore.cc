// The model's first values, new or from a checkpoint, and reading everything
// for a checkpoint.
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "floats.h"
#include "server_state.h"

namespace elasticdl::ps {
namespace {

// Of one answer, unless one bucket has more.
constexpr uint64_t kMaxReadBytes = uint64_t{64} << 20;

}  // namespace

// ---- the size of answers ----

uint64_t ServerState::AnswerBytes(const v1::PsPull& pull,
                                  uint64_t payload_bytes) const {
  uint64_t values = pull.dense() ? DenseValues() : 0;
  for (const v1::PsTablePart& part : pull.parts()) {
    // Others are refused.
    if (part.table() >= tables_.size() ||
        part.rows() > payload_bytes / sizeof(int64_t)) {
      return 0;
    }
    values += part.rows() * tables_[part.table()]->dim();
  }
  return std::min(values, kMaxPayloadBytes / sizeof(float)) * sizeof(float);
}

uint64_t ServerState::AnswerBytes(const v1::PsRead& read) const {
  return read.has_rows() ? kMaxReadBytes
                         : dense_.size() * DenseValues() * sizeof(float);
}

// ---- initial values ----

absl::Status ServerState::CheckInitialValues(const v1::PsInitialValues& values,
                                             absl::string_view payload) const {
  if (initialized_) return absl::AlreadyExistsError("the model has values");
  ELASTICDL_RETURN_IF_ERROR(CheckMapVersion(values.map_version()));
  if (values.version() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("initial values of version ", values.version()));
  }
  const size_t count = DenseValues() * (values.slots() ? dense_.size() : 1);
  if (payload.size() != count * sizeof(float)) {
    return absl::InvalidArgumentError(
        absl::StrCat("initial values of ", payload.size(), " bytes instead of ",
                     count * sizeof(float)));
  }
  // Buffers may hold anything: a mask, for example, is infinite.
  for (size_t at = 0; at < count; at += DenseValues()) {
    if (!AllFinite(Floats(payload, at * sizeof(float)), first_buffer_)) {
      return absl::InvalidArgumentError("an initial value is not finite");
    }
  }
  return absl::OkStatus();
}

void ServerState::SetInitialValues(const v1::PsInitialValues& values,
                                   absl::string_view payload) {
  DropRestored(values.version());
  // A server without dense values has no array to copy to.
  const size_t bytes = DenseValues() * sizeof(float);
  for (size_t i = 0; i < payload.size(); i += bytes) {
    std::memcpy(dense_[i / bytes].data(), payload.data() + i, bytes);
  }
  version_ = values.version();
  initialized_ = true;
  restoring_.reset();
}

// ---- rows of a checkpoint ----

void ServerState::DropRestored(std::optional<int64_t> but) {
  if (!restoring_.has_value() || restoring_ == but) return;
  for (const auto& table : tables_) table->Clear();
  restoring_.reset();
}

absl::Status ServerState::CheckRestoreSize(const v1::PsRestoreRows& rows,
                                           absl::string_view payload) const {
  if (initialized_) return absl::AlreadyExistsError("the model has values");
  ELASTICDL_RETURN_IF_ERROR(CheckMapVersion(rows.map_version()));
  if (rows.version() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows of version ", rows.version()));
  }
  if (rows.table() >= tables_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table number ", rows.table(), " of ", tables_.size()));
  }
  const EmbeddingTable& table = *tables_[rows.table()];
  const uint64_t floats = table.dim() * (rows.slots() ? 1 + table.slots() : 1);
  const uint64_t row_bytes =
      sizeof(int64_t) * (rows.ranks() ? 2 : 1) + floats * sizeof(float);
  // Divided, because the product may overflow.
  if (payload.size() % row_bytes != 0 ||
      payload.size() / row_bytes != rows.rows()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "restore rows of table ", table.name(), ": ", rows.rows(), " rows of ",
        row_bytes, " bytes in ", payload.size(), " bytes"));
  }
  return absl::OkStatus();
}

absl::Status ServerState::CheckRestoreRows(const v1::PsRestoreRows& rows,
                                           absl::string_view payload) const {
  ELASTICDL_RETURN_IF_ERROR(CheckRestoreSize(rows, payload));
  const EmbeddingTable& table = *tables_[rows.table()];
  const auto bad = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("restore rows of table ", table.name(), ": ", why));
  };
  const uint64_t floats = table.dim() * (rows.slots() ? 1 + table.slots() : 1);
  const int64_t* const ids = Ids(payload, 0);
  std::vector<int64_t> sorted(ids, ids + rows.rows());
  for (const int64_t id : sorted) {
    const int owner = map_.owner(BucketOf(HashRow(table.hash(), id)));
    if (owner != options_.server) {
      return bad(absl::StrCat("row ", id, " is on server ", owner, ", not on ",
                              options_.server));
    }
  }
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return bad(absl::StrCat("row ", *twice, " is there twice"));
  }
  if (!AllFinite(Floats(payload,
                        payload.size() - rows.rows() * floats * sizeof(float)),
                 rows.rows() * floats)) {
    return bad("a value is not finite");
  }
  return CheckRestoreMemory(rows, payload);
}

absl::Status ServerState::CheckRestoreMemory(const v1::PsRestoreRows& rows,
                                             absl::string_view payload) const {
  if (options_.memory_limit == 0) return absl::OkStatus();
  const EmbeddingTable& table = *tables_[rows.table()];
  // Rows of another version make room.
  const bool cleared = restoring_ != rows.version();
  const EmbeddingTable::Growth growth =
      table.GrowthBySet({Ids(payload, 0), rows.rows()}, cleared);
  const size_t bytes = (cleared ? EmptyBytes() : Bytes()) + growth.bytes;
  if (growth.rows == 0 || bytes <= options_.memory_limit) {
    return absl::OkStatus();
  }
  return TooLarge(
      absl::StrCat(growth.rows, " more rows of table ", table.name()));
}

absl::Status ServerState::RestoreRows(const v1::PsRestoreRows& rows,
                                      absl::string_view payload) {
  DropRestored(rows.version());
  restoring_ = rows.version();
  EmbeddingTable& table = *tables_[rows.table()];
  const int64_t* const ids = Ids(payload, 0);
  const int64_t* const ranks =
      rows.ranks() ? Ids(payload, rows.rows() * sizeof(int64_t)) : nullptr;
  const float* const values =
      Floats(payload, rows.rows() * sizeof(int64_t) * (rows.ranks() ? 2 : 1));
  const size_t all = rows.rows() * table.dim();
  std::vector<const float*> slots(rows.slots() ? table.slots() : 0);
  for (size_t i = 0; i < rows.rows(); ++i) {
    const float* const row = values + i * table.dim();
    for (size_t s = 0; s < slots.size(); ++s) slots[s] = row + (1 + s) * all;
    std::optional<uint64_t> rank;
    if (ranks != nullptr) rank = static_cast<uint64_t>(ranks[i]);
    ELASTICDL_RETURN_IF_ERROR(table.Set(ids[i], row, slots, rank));
  }
  return absl::OkStatus();
}

// ---- reading ----

absl::Status ServerState::Read(const v1::PsRead& read, v1::PsReply& reply,
                               Buffer& out) const {
  ELASTICDL_RETURN_IF_ERROR(CheckReady(read.map_version()));
  reply.set_version(version_);
  return read.has_rows() ? ReadRows(read.rows(), reply, out) : ReadDense(out);
}

absl::Status ServerState::ReadDense(Buffer& out) const {
  const size_t bytes = DenseValues() * sizeof(float);
  if (bytes == 0) return absl::OkStatus();
  if (bytes > kMaxPayloadBytes / dense_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "server ", options_.server, " holds too many dense values to read"));
  }
  char* to = out.Resize(bytes * dense_.size());
  if (to == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for an answer of ", bytes * dense_.size(), " bytes"));
  }
  for (const std::vector<float>& array : dense_) {
    std::memcpy(to, array.data(), bytes);
    to += bytes;
  }
  return absl::OkStatus();
}

absl::Status ServerState::ReadRows(const v1::PsRead::Rows& read,
                                   v1::PsReply& reply, Buffer& out) const {
  if (read.table() >= tables_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table number ", read.table(), " of ", tables_.size()));
  }
  if (read.begin() < 0 || read.begin() > kBuckets) {
    return absl::InvalidArgumentError(absl::StrCat("bucket ", read.begin()));
  }
  const EmbeddingTable& table = *tables_[read.table()];
  const size_t floats = table.dim() * (1 + table.slots());
  const size_t row_bytes =
      sizeof(int64_t) * (table.evicts() ? 2 : 1) + floats * sizeof(float);
  const uint64_t most = std::min(read.max_bytes(), kMaxReadBytes) / row_bytes;
  std::vector<std::pair<int64_t, const char*>> rows;
  int bucket = read.begin();
  for (; bucket < kBuckets; ++bucket) {
    if (!rows.empty() && rows.size() + table.rows_in(bucket) > most) break;
    const auto before = static_cast<std::ptrdiff_t>(rows.size());
    table.ForEach(bucket, [&](int64_t id, const char* row) {
      rows.emplace_back(id, row);
    });
    // The order in which rows were created is no part of the state.
    std::sort(rows.begin() + before, rows.end());
  }
  reply.set_rows(rows.size());
  reply.set_ranks(table.evicts());
  reply.set_next_bucket(bucket);
  if (rows.empty()) return absl::OkStatus();
  char* to = out.Resize(rows.size() * row_bytes);
  if (to == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for an answer of ", rows.size() * row_bytes, " bytes"));
  }
  for (const auto& [id, row] : rows) {
    std::memcpy(to, &id, sizeof(id));
    to += sizeof(id);
  }
  for (const auto& [id, row] : rows) {
    if (!table.evicts()) break;
    const uint64_t rank = table.RankOf(row);
    std::memcpy(to, &rank, sizeof(rank));
    to += sizeof(rank);
  }
  // Always floats, whatever they are stored as. Ids and ranks have 8 bytes.
  auto* floats_to = reinterpret_cast<float*>(to);
  for (const auto& [id, row] : rows) {
    table.CopyValues(row, floats_to);
    floats_to += table.dim();
  }
  for (size_t s = 0; s < table.slots(); ++s) {
    for (const auto& [id, row] : rows) {
      std::memcpy(floats_to, table.Slot(row, s), table.dim() * sizeof(float));
      floats_to += table.dim();
    }
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::ps
