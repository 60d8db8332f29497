#include "embedding_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace elasticdl::ps {
namespace {

constexpr size_t kCacheLine = 64;
// A row is prefetched up to here; the hardware fetches the rest of long ones.
constexpr size_t kPrefetchBytes = 256;
// As many as any optimizer has (Adam with amsgrad).
constexpr size_t kMaxSlots = 3;

void PrefetchRow(const char* row, size_t stride) {
  if (row == nullptr) return;
  const size_t bytes = std::min(stride, kPrefetchBytes);
  for (size_t at = 0; at < bytes; at += kCacheLine) {
    __builtin_prefetch(row + at);
  }
}

size_t Stride(size_t dim, size_t slots) {
  const size_t floats = dim * (1 + slots);
  return sizeof(int64_t) + (floats + floats % 2) * sizeof(float);
}

}  // namespace

EmbeddingTable::EmbeddingTable(Options options,
                               const optim::Optimizer& optimizer)
    : options_(std::move(options)),
      optimizer_(optimizer),
      slots_(optimizer.slot_names().size()),
      layout_(RowLayout::Make(HashName(options_.name),
                              Stride(options_.dim, slots_))),
      arena_(layout_.slab_bytes()) {}

void EmbeddingTable::Pull(absl::Span<const int64_t> ids, float* out) const {
  const size_t dim = options_.dim;
  uint64_t hashes[kBatch];
  // The lines of the next batch's index are on their way while this batch is
  // copied.
  const auto hash_batch = [&](size_t from) {
    const size_t count = std::min(kBatch, ids.size() - from);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = HashRow(layout_.table, ids[from + i]);
      buckets_[static_cast<size_t>(BucketOf(hashes[i]))].PrefetchIndex(
          hashes[i]);
    }
  };
  if (!ids.empty()) hash_batch(0);
  for (size_t from = 0; from < ids.size(); from += kBatch) {
    const size_t count = std::min(kBatch, ids.size() - from);
    uint64_t mine[kBatch];
    for (size_t i = 0; i < count; ++i) {
      mine[i] = hashes[i];
      PrefetchRow(buckets_[static_cast<size_t>(BucketOf(mine[i]))].Guess(
                      mine[i], layout_),
                  sizeof(int64_t) + dim * sizeof(float));
    }
    if (from + kBatch < ids.size()) hash_batch(from + kBatch);
    for (size_t i = 0; i < count; ++i) {
      float* to = out + (from + i) * dim;
      const char* row = buckets_[static_cast<size_t>(BucketOf(mine[i]))].Find(
          mine[i], ids[from + i], layout_);
      if (row == nullptr) {
        options_.initializer.Fill(options_.seed, mine[i], to, dim);
      } else {
        std::memcpy(to, row + sizeof(int64_t), dim * sizeof(float));
      }
    }
  }
}

absl::Status EmbeddingTable::Push(absl::Span<const int64_t> ids,
                                  const float* grads, double learning_rate,
                                  int64_t step) {
  for (size_t from = 0; from < ids.size(); from += kBatch) {
    const size_t count = std::min(kBatch, ids.size() - from);
    absl::Status pushed =
        PushBatch(ids.data() + from, count, grads + from * options_.dim,
                  learning_rate, step);
    if (!pushed.ok()) return pushed;
  }
  return absl::OkStatus();
}

absl::Status EmbeddingTable::PushBatch(const int64_t* ids, size_t count,
                                       const float* grads, double learning_rate,
                                       int64_t step) {
  uint64_t hashes[kBatch];
  for (size_t i = 0; i < count; ++i) {
    hashes[i] = HashRow(layout_.table, ids[i]);
    buckets_[static_cast<size_t>(BucketOf(hashes[i]))].PrefetchIndex(hashes[i]);
  }
  for (size_t i = 0; i < count; ++i) {
    PrefetchRow(buckets_[static_cast<size_t>(BucketOf(hashes[i]))].Guess(
                    hashes[i], layout_),
                layout_.stride);
  }
  optim::Update updates[kBatch];
  float* slots[kBatch][kMaxSlots];
  for (size_t i = 0; i < count; ++i) {
    RowTable& bucket = buckets_[static_cast<size_t>(BucketOf(hashes[i]))];
    char* row = bucket.Find(hashes[i], ids[i], layout_);
    if (row == nullptr) {
      row = Add(hashes[i], ids[i]);
      if (row == nullptr) return NoRoom();
      Initialize(hashes[i], Values(row));
    }
    float* values = Values(row);
    for (size_t s = 0; s < slots_; ++s) {
      slots[i][s] = values + (1 + s) * options_.dim;
    }
    updates[i] = {values, grads + i * options_.dim, slots[i], options_.dim};
  }
  optimizer_.ApplyAll({updates, count}, learning_rate, step);
  return absl::OkStatus();
}

absl::Status EmbeddingTable::Set(int64_t id, const float* values,
                                 absl::Span<const float* const> slots) {
  const uint64_t hash = HashRow(layout_.table, id);
  char* row =
      buckets_[static_cast<size_t>(BucketOf(hash))].Find(hash, id, layout_);
  if (row == nullptr) {
    row = Add(hash, id);
    if (row == nullptr) return NoRoom();
    ClearPadding(Values(row));
  }
  const size_t dim = options_.dim;
  float* to = Values(row);
  std::memcpy(to, values, dim * sizeof(float));
  for (size_t s = 0; s < slots_; ++s) {
    to += dim;
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
}

absl::Status EmbeddingTable::NoRoom() const {
  return absl::ResourceExhaustedError(absl::StrCat(
      "no room for another row of table ", name(), ", which has ", rows()));
}

void EmbeddingTable::Initialize(uint64_t hash, float* values) const {
  const size_t dim = options_.dim;
  options_.initializer.Fill(options_.seed, hash, values, dim);
  // The slots start at the optimizer's own value, not at the row's.
  for (size_t s = 0; s < slots_; ++s) {
    std::fill_n(values + (1 + s) * dim, dim, optimizer_.initial_slot_value(s));
  }
  ClearPadding(values);
}

void EmbeddingTable::ClearPadding(float* values) const {
  const size_t floats = (1 + slots_) * options_.dim;
  if (floats % 2 != 0) values[floats] = 0;
}

absl::Status EmbeddingTable::Restore(const char* row) {
  const int64_t id = RowTable::IdOf(row);
  const uint64_t hash = HashRow(layout_.table, id);
  RowTable& bucket = buckets_[static_cast<size_t>(BucketOf(hash))];
  if (bucket.Find(hash, id, layout_) != nullptr) {
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
  return bytes;
}

char* EmbeddingTable::Add(uint64_t hash, int64_t id) {
  char* row = buckets_[static_cast<size_t>(BucketOf(hash))].Add(
      hash, id, layout_, arena_);
  if (row != nullptr) ++rows_;
  return row;
}

int64_t EmbeddingTable::CountMissing(absl::Span<const int64_t> ids) const {
  int64_t missing = 0;
  for (const int64_t id : ids) {
    const uint64_t hash = HashRow(layout_.table, id);
    const RowTable& bucket = buckets_[static_cast<size_t>(BucketOf(hash))];
    if (bucket.Find(hash, id, layout_) == nullptr) ++missing;
  }
  return missing;
}

}  // namespace elasticdl::ps
