#include "embedding_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "embedding_table_visit.h"

namespace elasticdl::ps {
namespace {

// As many as any optimizer has (Adam with amsgrad).
constexpr size_t kMaxSlots = 3;

}  // namespace

EmbeddingTable::EmbeddingTable(Options options,
                               const optim::Optimizer& optimizer)
    : options_(std::move(options)),
      optimizer_(optimizer),
      slots_(optimizer.slot_names().size()),
      values_at_(sizeof(int64_t) + (evicts() ? sizeof(uint64_t) : 0)),
      slots_at_(RoundUp(values_at_ + options_.dim * BytesOf(options_.type),
                        sizeof(float))),
      layout_(RowLayout::Make(
          HashName(options_.name),
          RoundUp(slots_at_ + slots_ * options_.dim * sizeof(float), 8))),
      arena_(layout_.slab_bytes()),
      sightings_(counts() ? kBuckets : 0) {}

void EmbeddingTable::Find(Lookup& lookup) const {
  if (lookup.guess == RowTable::kNoRow) return;
  if (RowTable::IdOf(lookup.row) == lookup.id) return;
  lookup.row = BucketFor(lookup.hash).Find(lookup.hash, lookup.id, layout_);
}

void EmbeddingTable::Pull(absl::Span<const int64_t> ids, float* out) const {
  const size_t dim = options_.dim;
  Visit(ids, values_at_ + dim * BytesOf(options_.type),
        [&](size_t from, Lookup* lookups, size_t count) {
          float* to = out + from * dim;
          for (size_t i = 0; i < count; ++i, to += dim) {
            Find(lookups[i]);
            if (lookups[i].row == nullptr) {
              FillInitial(lookups[i].hash, to);
            } else {
              CopyValues(lookups[i].row, to);
            }
          }
        });
}

absl::Status EmbeddingTable::Push(absl::Span<const int64_t> ids,
                                  const float* grads, double learning_rate,
                                  int64_t step) {
  if (!counts() && !evicts()) return PushKept(ids, grads, learning_rate, step);
  const std::vector<uint32_t> kept = Admit(ids, step);
  if (kept.size() == ids.size()) {
    return PushKept(ids, grads, learning_rate, step);
  }
  std::vector<int64_t> kept_ids;
  std::vector<float> kept_grads;
  for (const uint32_t i : kept) {
    kept_ids.push_back(ids[i]);
    const float* from = grads + i * options_.dim;
    kept_grads.insert(kept_grads.end(), from, from + options_.dim);
  }
  return PushKept(kept_ids, kept_grads.data(), learning_rate, step);
}

absl::Status EmbeddingTable::PushKept(absl::Span<const int64_t> ids,
                                      const float* grads, double learning_rate,
                                      int64_t step) {
  absl::Status status;
  Visit(ids, layout_.stride, [&](size_t from, Lookup* lookups, size_t count) {
    if (!status.ok()) return;
    status = PushBatch(lookups, count, grads + from * options_.dim,
                       learning_rate, step);
  });
  return status;
}

absl::Status EmbeddingTable::PushBatch(Lookup* lookups, size_t count,
                                       const float* grads, double learning_rate,
                                       int64_t step) {
  const size_t dim = options_.dim;
  const bool stored_as_float = options_.type == RowType::kFloat32;
  if (!stored_as_float) floats_.resize(kBatch * dim);
  char* rows[kBatch];
  optim::Update updates[kBatch];
  float* slots[kBatch][kMaxSlots];
  for (size_t i = 0; i < count; ++i) {
    Find(lookups[i]);
    rows[i] = const_cast<char*>(lookups[i].row);
    if (rows[i] == nullptr) {
      rows[i] = Add(lookups[i].hash, lookups[i].id);
      if (rows[i] == nullptr) return NoRoom();
      Initialize(lookups[i].hash, rows[i]);
      if (evicts()) Touch(rows[i], step);
    }
    auto* values = reinterpret_cast<float*>(rows[i] + values_at_);
    if (!stored_as_float) {
      values = floats_.data() + i * dim;
      CopyValues(rows[i], values);
    }
    for (size_t s = 0; s < slots_; ++s) slots[i][s] = MutableSlot(rows[i], s);
    updates[i] = {values, grads + i * dim, slots[i], dim};
  }
  optimizer_.ApplyAll({updates, count}, learning_rate, step);
  if (stored_as_float) return absl::OkStatus();
  for (size_t i = 0; i < count; ++i) {
    // Other bits for each push to the same row.
    StoreRandomly(options_.type,
                  lookups[i].hash ^ MixHash(static_cast<uint64_t>(step)),
                  updates[i].param, rows[i] + values_at_, dim);
  }
  return absl::OkStatus();
}

absl::Status EmbeddingTable::Set(int64_t id, const float* values,
                                 absl::Span<const float* const> slots) {
  const uint64_t hash = HashRow(layout_.table, id);
  char* row = BucketFor(hash).Find(hash, id, layout_);
  if (row == nullptr) {
    row = Add(hash, id);
    if (row == nullptr) return NoRoom();
    Initialize(hash, row);
  }
  const size_t dim = options_.dim;
  StoreNearest(options_.type, values, row + values_at_, dim);
  for (size_t s = 0; s < slots_; ++s) {
    float* to = MutableSlot(row, s);
    if (slots.empty()) {
      std::fill_n(to, dim, optimizer_.initial_slot_value(s));
    } else {
      std::memcpy(to, slots[s], dim * sizeof(float));
    }
  }
  return absl::OkStatus();
}

void EmbeddingTable::Clear() {
  for (RowTable& bucket : buckets_) bucket.Clear(arena_);
  rows_ = 0;
  for (Sightings& sightings : sightings_) sightings = Sightings();
  sighting_bytes_ = 0;
}

absl::Status EmbeddingTable::NoRoom() const {
  return absl::ResourceExhaustedError(absl::StrCat(
      "no room for another row of table ", name(), ", which has ", rows()));
}

void EmbeddingTable::FillInitial(uint64_t hash, float* values) const {
  options_.initializer.Fill(options_.seed, hash, values, options_.dim);
  if (options_.type == RowType::kFloat32) return;
  char stored[sizeof(uint16_t)];
  for (size_t i = 0; i < options_.dim; ++i) {
    StoreNearest(options_.type, values + i, stored, 1);
    LoadValues(options_.type, stored, values + i, 1);
  }
}

void EmbeddingTable::Initialize(uint64_t hash, char* row) const {
  // Gaps are part of snapshots and digests.
  std::memset(row + sizeof(int64_t), 0, layout_.stride - sizeof(int64_t));
  const size_t dim = options_.dim;
  if (options_.type == RowType::kFloat32) {
    FillInitial(hash, reinterpret_cast<float*>(row + values_at_));
  } else {
    std::vector<float> values(dim);
    FillInitial(hash, values.data());
    StoreNearest(options_.type, values.data(), row + values_at_, dim);
  }
  // The slots start at the optimizer's own value, not at the row's.
  for (size_t s = 0; s < slots_; ++s) {
    std::fill_n(MutableSlot(row, s), dim, optimizer_.initial_slot_value(s));
  }
}

absl::Status EmbeddingTable::Restore(const char* row) {
  const int64_t id = RowTable::IdOf(row);
  const uint64_t hash = HashRow(layout_.table, id);
  if (BucketFor(hash).Find(hash, id, layout_) != nullptr) {
    return absl::DataLossError(
        absl::StrCat("row ", id, " of table ", name(), " is there twice"));
  }
  char* added = Add(hash, id);
  if (added == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for the rows of table ", name()));
  }
  std::memcpy(added, row, layout_.stride);
  return absl::OkStatus();
}

std::string EmbeddingTable::TakeBucket(int bucket) {
  RowTable& rows = buckets_[static_cast<size_t>(bucket)];
  std::string bytes;
  bytes.reserve(rows.rows() * layout_.stride);
  for (uint32_t i = 0; i < rows.rows(); ++i) {
    bytes.append(rows.row(i, layout_), layout_.stride);
  }
  rows_ -= rows.rows();
  rows.Clear(arena_);
  if (counts()) RestoreSightings(bucket, "");
  return bytes;
}

char* EmbeddingTable::Add(uint64_t hash, int64_t id) {
  char* row = BucketFor(hash).Add(hash, id, layout_, arena_);
  if (row != nullptr) ++rows_;
  return row;
}

int64_t EmbeddingTable::CountMissing(absl::Span<const int64_t> ids) const {
  int64_t missing = 0;
  for (const int64_t id : ids) {
    const uint64_t hash = HashRow(layout_.table, id);
    if (BucketFor(hash).Find(hash, id, layout_) == nullptr) ++missing;
  }
  return missing;
}

}  // namespace elasticdl::ps
