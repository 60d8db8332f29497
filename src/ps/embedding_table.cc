#include "embedding_table.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/thread.h"
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
      hash_(HashName(options_.name)),
      slots_at_(RoundUp(options_.dim * BytesOf(options_.type), sizeof(float))),
      rank_at_(RoundUp(slots_at_ + slots_ * options_.dim * sizeof(float), 8)),
      layout_(RowLayout::Make(rank_at_ + (evicts() ? sizeof(uint64_t) : 0))),
      arenas_(layout_.slab_bytes()),
      sightings_(counts() ? kBuckets : 0) {}

void EmbeddingTable::Pull(absl::Span<const int64_t> ids, float* out) const {
  const size_t dim = options_.dim;
  Visit(ids, dim * BytesOf(options_.type),
        [&](size_t from, Lookup* lookups, size_t count) {
          float* to = out + from * dim;
          for (size_t i = 0; i < count; ++i, to += dim) {
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
                                  int64_t step, bool grow) {
  if (!counts() && !evicts()) return PushKept(ids, grads, learning_rate, step);
  const std::vector<uint32_t> kept = Admit(ids, step, grow);
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
  const uint64_t moves = arenas_.moves;
  Visit(ids, layout_.stride, [&](size_t from, Lookup* lookups, size_t count) {
    if (status.ok()) {
      status = AddMissing(lookups, count, step, moves, /*repeated=*/false);
    }
    if (!status.ok()) return;
    const float* each[kBatch];
    for (size_t i = 0; i < count; ++i) {
      each[i] = grads + (from + i) * options_.dim;
    }
    PushBatch(lookups, count, each, learning_rate, step, floats_);
  });
  return status;
}

absl::Status EmbeddingTable::PushRows(absl::Span<const RowUpdate> updates,
                                      absl::Span<const PushedRows> pushes) {
  // So that no index grows more than once.
  for (size_t first = 0; first < updates.size();) {
    const int bucket = BucketOf(updates[first].hash);
    size_t end = first + 1;
    while (end < updates.size() && BucketOf(updates[end].hash) == bucket) ++end;
    RowTable& rows = buckets_[static_cast<size_t>(bucket)];
    rows.Reserve(rows.rows() + (end - first), arenas_);
    first = end;
  }
  absl::Status status;
  std::vector<float> floats;
  const auto grads_of = [&](const RowUpdate& update) {
    return pushes[update.push].grads + update.row * options_.dim;
  };
  const auto hash_of = [&](size_t i) {
    __builtin_prefetch(grads_of(updates[i]));
    return updates[i].hash;
  };
  const auto visit = [&](size_t from, Lookup* lookups, size_t count) {
    if (status.ok()) {
      // Others add rows, too: what has moved is not known.
      status = AddMissing(lookups, count, /*step=*/0, ~uint64_t{0},
                          /*repeated=*/true);
    }
    if (!status.ok()) return;
    const RowUpdate* const batch = &updates[from];
    const float* each[kBatch];
    for (size_t i = 0; i < count; ++i) each[i] = grads_of(batch[i]);
    // Pushes differ in their rate and step, and may have the same row.
    for (size_t i = 0; i < count;) {
      size_t end = i + 1;
      while (end < count && batch[end].push == batch[i].push) ++end;
      const PushedRows& push = pushes[batch[i].push];
      PushBatch(lookups + i, end - i, each + i, push.learning_rate, push.step,
                floats);
      i = end;
    }
  };
  VisitHashes(updates.size(), hash_of, layout_.stride, visit);
  return status;
}

absl::Status EmbeddingTable::AddMissing(Lookup* lookups, size_t count,
                                        int64_t step, uint64_t moves,
                                        bool repeated) {
  int64_t added = 0;
  absl::Status status;
  for (size_t i = 0; i < count && status.ok(); ++i) {
    if (lookups[i].row != nullptr) continue;
    const RowTable& bucket = BucketFor(lookups[i].hash);
    // It may have been added since it was looked up.
    if (repeated) {
      lookups[i].number = bucket.index().Find(lookups[i].hash);
      if (lookups[i].number != RowTable::kNoRow) {
        lookups[i].row = bucket.row(lookups[i].number, layout_);
        continue;
      }
    }
    char* row = Add(lookups[i].hash);
    if (row == nullptr) {
      status = NoRoom();
      continue;
    }
    ++added;
    Initialize(lookups[i].hash, row);
    if (evicts()) Touch(row, step);
    lookups[i].row = row;
    lookups[i].number = bucket.rows() - 1;
  }
  if (added > 0) rows_ += added;
  if (!status.ok() || arenas_.moves == moves) return status;
  for (size_t i = 0; i < count; ++i) {
    lookups[i].row = BucketFor(lookups[i].hash).row(lookups[i].number, layout_);
  }
  return absl::OkStatus();
}

void EmbeddingTable::PushBatch(const Lookup* lookups, size_t count,
                               const float* const* grads, double learning_rate,
                               int64_t step, std::vector<float>& floats) {
  const size_t dim = options_.dim;
  const bool stored_as_float = options_.type == RowType::kFloat32;
  if (!stored_as_float) floats.resize(kBatch * dim);
  char* rows[kBatch];
  optim::Update updates[kBatch];
  float* slots[kBatch][kMaxSlots];
  for (size_t i = 0; i < count; ++i) {
    rows[i] = const_cast<char*>(lookups[i].row);
    auto* values = reinterpret_cast<float*>(rows[i]);
    if (!stored_as_float) {
      values = floats.data() + i * dim;
      CopyValues(rows[i], values);
    }
    for (size_t s = 0; s < slots_; ++s) slots[i][s] = MutableSlot(rows[i], s);
    updates[i] = {values, grads[i], slots[i], dim};
  }
  optimizer_.ApplyAll({updates, count}, learning_rate, step);
  if (stored_as_float) return;
  for (size_t i = 0; i < count; ++i) {
    // Other bits for each push to the same row.
    StoreRandomly(options_.type,
                  lookups[i].hash ^ MixHash(static_cast<uint64_t>(step)),
                  updates[i].param, rows[i], dim);
  }
}

absl::Status EmbeddingTable::Set(int64_t id, const float* values,
                                 absl::Span<const float* const> slots,
                                 std::optional<uint64_t> rank) {
  const uint64_t hash = HashRow(hash_, id);
  char* row = BucketFor(hash).Find(hash, layout_);
  if (row == nullptr) {
    row = Add(hash);
    if (row == nullptr) return NoRoom();
    ++rows_;
    Initialize(hash, row);
  }
  const size_t dim = options_.dim;
  StoreNearest(options_.type, values, row, dim);
  for (size_t s = 0; s < slots_; ++s) {
    float* to = MutableSlot(row, s);
    if (slots.empty()) {
      std::fill_n(to, dim, optimizer_.initial_slot_value(s));
    } else {
      std::memcpy(to, slots[s], dim * sizeof(float));
    }
  }
  if (evicts()) SetRank(row, rank.value_or(0));
  return absl::OkStatus();
}

void EmbeddingTable::Clear() {
  for (RowTable& bucket : buckets_) bucket.Clear(layout_, arenas_);
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
  std::memset(row, 0, layout_.stride);
  const size_t dim = options_.dim;
  if (options_.type == RowType::kFloat32) {
    FillInitial(hash, reinterpret_cast<float*>(row));
  } else {
    std::vector<float> values(dim);
    FillInitial(hash, values.data());
    StoreNearest(options_.type, values.data(), row, dim);
  }
  // The slots start at the optimizer's own value, not at the row's.
  for (size_t s = 0; s < slots_; ++s) {
    std::fill_n(MutableSlot(row, s), dim, optimizer_.initial_slot_value(s));
  }
}

absl::Status EmbeddingTable::Restore(absl::string_view records) {
  // As long as a thread takes to start, a hundred times.
  constexpr size_t kFew = 10000;
  const size_t count = records.size() / record_bytes();
  if (count < kFew) return RestoreBuckets(0, kBuckets, records);
  // The second half begins with a bucket.
  size_t half = count / 2;
  const int middle = BucketOfRecord(records.data() + half * record_bytes());
  while (half > 0 && BucketOfRecord(records.data() +
                                    (half - 1) * record_bytes()) == middle) {
    --half;
  }
  const size_t bytes = half * record_bytes();
  absl::Status second;
  const auto restore_second = [&] {
    second = RestoreBuckets(middle, kBuckets, records.substr(bytes));
  };
  Thread other;
  try {
    other = Thread("restore", restore_second);
  } catch (const std::system_error&) {
    // Too many threads.
    restore_second();
  }
  absl::Status first = RestoreBuckets(0, middle, records.substr(0, bytes));
  other.Join();
  first.Update(second);
  return first;
}

absl::Status EmbeddingTable::RestoreBuckets(int first, int end,
                                            absl::string_view records) {
  const size_t size = record_bytes();
  // Those of one bucket follow each other: its index need not grow step by
  // step.
  while (!records.empty()) {
    const int bucket = BucketOfRecord(records.data());
    if (bucket < first || bucket >= end) {
      return absl::DataLossError(absl::StrCat(
          "rows of table ", name(), " are not in the order of their buckets"));
    }
    size_t count = 1;
    while ((count + 1) * size <= records.size() &&
           BucketOfRecord(records.data() + count * size) == bucket) {
      ++count;
    }
    ELASTICDL_RETURN_IF_ERROR(
        RestoreBucket(bucket, records.substr(0, count * size)));
    records.remove_prefix(count * size);
  }
  return absl::OkStatus();
}

absl::Status EmbeddingTable::RestoreBucket(int bucket,
                                           absl::string_view records) {
  RowTable& rows = buckets_[static_cast<size_t>(bucket)];
  const uint32_t before = rows.rows();
  rows.Reserve(before + records.size() / record_bytes(), arenas_);
  for (; !records.empty(); records.remove_prefix(record_bytes())) {
    const int64_t id = IdOf(records.data());
    const uint64_t hash = HashRow(hash_, id);
    if (rows.Find(hash, layout_) != nullptr) {
      return absl::DataLossError(
          absl::StrCat("row ", id, " of table ", name(), " is there twice"));
    }
    char* added = Add(hash);
    if (added == nullptr) return NoRoom();
    std::memcpy(added, records.data() + sizeof(id), layout_.stride);
  }
  rows_ += rows.rows() - before;
  return absl::OkStatus();
}

std::string EmbeddingTable::TakeBucket(int bucket) {
  RowTable& rows = buckets_[static_cast<size_t>(bucket)];
  std::string bytes;
  bytes.reserve(rows.rows() * record_bytes());
  ForEach(bucket, [&](int64_t id, const char* row) {
    bytes.append(reinterpret_cast<const char*>(&id), sizeof(id));
    bytes.append(row, layout_.stride);
  });
  rows_ -= rows.rows();
  rows.Clear(layout_, arenas_);
  if (counts()) RestoreSightings(bucket, "");
  return bytes;
}

}  // namespace elasticdl::ps
