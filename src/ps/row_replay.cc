#include "row_replay.h"

#include <algorithm>
#include <array>
#include <functional>
#include <system_error>
#include <thread>

#include "elasticdl/common/log.h"

namespace elasticdl::ps {
namespace {

// Threads beyond this wait for memory.
constexpr unsigned kMostThreads = 8;
// Some milliseconds of work for all of them; the rows of one bucket stay in the
// cache meanwhile.
constexpr size_t kMostCollectedBytes = size_t{8} << 20;
// Of one unit: much longer than taking it.
constexpr size_t kFewestUpdates = 512;
// So that all threads end at about the same time.
constexpr size_t kMostUnits = 64;

}  // namespace

RowReplay::RowReplay() {
  const unsigned cores = std::thread::hardware_concurrency();
  // The caller is one of them.
  const unsigned others = std::clamp(cores, 1u, kMostThreads) - 1;
  try {
    for (unsigned i = 0; i < others; ++i) {
      threads_.emplace_back("replay", [this] { Work(); });
    }
  } catch (const std::system_error& error) {
    LogWarning("reads a log with fewer threads: ", error.what());
  }
}

RowReplay::~RowReplay() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
    batch_ = nullptr;
  }
  ready_.NotifyAll();
  for (Thread& thread : threads_) thread.Join();
}

void RowReplay::Add(EmbeddingTable& table, absl::Span<const int64_t> ids,
                    const float* values, double learning_rate, int64_t step) {
  if (ids.empty()) return;
  parts_.push_back({&table, ids, {values, learning_rate, step}});
  collected_bytes_ +=
      ids.size() * (sizeof(int64_t) + table.dim() * sizeof(float));
  if (collected_bytes_ > kMostCollectedBytes) HandOver();
}

absl::Status RowReplay::Finish() {
  HandOver();
  Help();
  MutexLock lock(mu_);
  return status_;
}

void RowReplay::HandOver() {
  if (parts_.empty()) return;
  Batch& batch = batches_[filled_];
  filled_ = 1 - filled_;
  Sort(batch);
  parts_.clear();
  collected_bytes_ = 0;
  // A bucket's updates of the batch before come first.
  Help();
  {
    MutexLock lock(mu_);
    batch_ = &batch;
    next_ = 0;
    left_ = batch.units.size();
  }
  ready_.NotifyAll();
}

void RowReplay::Sort(Batch& batch) {
  // The order of tables does not matter, that of the pushes to one does.
  std::stable_sort(parts_.begin(), parts_.end(),
                   [](const Part& a, const Part& b) {
                     return std::less<>()(a.table, b.table);
                   });
  size_t total = 0;
  batch.pushes.clear();
  for (const Part& part : parts_) {
    total += part.ids.size();
    batch.pushes.push_back(part.push);
  }
  batch.updates.resize(total);
  batch.units.clear();
  size_t at = 0;
  for (size_t first = 0; first < parts_.size();) {
    size_t end = first;
    size_t size = 0;
    for (; end < parts_.size() && parts_[end].table == parts_[first].table;
         ++end) {
      size += parts_[end].ids.size();
    }
    SortTable(first, end, at, batch);
    at += size;
    first = end;
  }
}

void RowReplay::SortTable(size_t first, size_t end, size_t at, Batch& batch) {
  EmbeddingTable& table = *parts_[first].table;
  // Where the next update of each bucket goes; at first: one bucket further,
  // how many there are.
  std::array<size_t, kBuckets + 1> places{};
  hashes_.clear();
  for (size_t p = first; p < end; ++p) {
    for (const int64_t id : parts_[p].ids) {
      hashes_.push_back(HashRow(table.hash(), id));
      ++places[static_cast<size_t>(BucketOf(hashes_.back())) + 1];
    }
  }
  const size_t fewest = std::max(kFewestUpdates, hashes_.size() / kMostUnits);
  size_t begin = at;
  places[0] = at;
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
    places[bucket + 1] += places[bucket];
    const size_t size = places[bucket + 1] - begin;
    if (size == 0 || (size < fewest && bucket + 1 < kBuckets)) continue;
    batch.units.push_back({&table,
                           absl::MakeConstSpan(&batch.updates[begin], size),
                           absl::MakeConstSpan(batch.pushes)});
    begin += size;
  }
  size_t next = 0;
  for (size_t p = first; p < end; ++p) {
    for (size_t i = 0; i < parts_[p].ids.size(); ++i) {
      const uint64_t hash = hashes_[next++];
      batch.updates[places[static_cast<size_t>(BucketOf(hash))]++] = {
          hash, static_cast<uint32_t>(p), static_cast<uint32_t>(i)};
    }
  }
}

bool RowReplay::Take(Unit& unit) {
  if (batch_ == nullptr || next_ >= batch_->units.size()) return false;
  unit = batch_->units[next_++];
  return true;
}

void RowReplay::Apply(const Unit& unit) {
  const absl::Status applied = unit.table->PushRows(unit.updates, unit.pushes);
  MutexLock lock(mu_);
  status_.Update(applied);
  if (--left_ == 0) done_.NotifyAll();
}

void RowReplay::Help() {
  while (true) {
    Unit unit;
    {
      MutexLock lock(mu_);
      if (!Take(unit)) {
        while (left_ > 0) done_.Wait(mu_);
        return;
      }
    }
    Apply(unit);
  }
}

void RowReplay::Work() {
  while (true) {
    Unit unit;
    {
      MutexLock lock(mu_);
      while (!Take(unit)) {
        if (stopped_) return;
        ready_.Wait(mu_);
      }
    }
    Apply(unit);
  }
}

}  // namespace elasticdl::ps
