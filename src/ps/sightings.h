// How often the ids of one bucket that have no row were seen, in bounded
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace elasticdl::ps {

// A pure state machine, and a value. Thread-compatible. A hash table of 24 bits
// of each id's hash and a count: two ids are taken for one in a few of ten
// thousand cases. It grows to kMostBytes; when that is full all counts are
// halved, so that ids that were seen once, long ago, are forgotten.
class Sightings {
 public:
  static constexpr size_t kMostBytes = (size_t{16} << 10) + 8;
  static constexpr int kMostCount = 255;

  // Counts one. True when the id was seen `enough` times by now; then it is
  // forgotten. `hash`: HashRow.
  bool Add(uint64_t hash, int enough);

  size_t bytes() const { return data_.size(); }
  // For snapshots and moves; empty when nothing was seen.
  absl::string_view data() const { return data_; }
  // Could `data` be that of an object of this class?
  static bool IsValid(absl::string_view data);
  void Restore(absl::string_view data) { data_ = std::string(data); }

 private:
  size_t slots() const;
  uint32_t Get(size_t slot) const;
  void Set(size_t slot, uint32_t entry);
  uint64_t used() const;
  void SetUsed(uint64_t used);
  void Insert(uint32_t entry);
  void Remove(size_t slot);
  // A table of so many slots; counts are divided.
  void Rebuild(size_t slots, uint32_t divisor);

  // uint64 entries in use; then the slots, a power of two: 0, or 24 bits of
  // the hash and 8 of count.
  std::string data_;
};

}  // namespace elasticdl::ps
