// Chooses where in its part of the shared memory a rank puts a phase's data.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elasticdl::collective {

// The part is a ring: data goes to memory that the others' caches have dropped,
// which is written twice as fast as memory that they still hold. All ranks make
// the same calls, so the offset is the same in every rank's part.
//
// The part has four quarters. Before a quarter is used again, all ranks must
// have finished reading it; within a quarter nothing is checked.
// Thread-compatible.
class SlotRing {
 public:
  struct Place {
    size_t offset = 0;
    // True: first wait until all have published phase `free_at`.
    bool must_wait = false;
    uint32_t free_at = 0;
  };

  // `quarter_bytes` is a multiple of 64.
  explicit SlotRing(size_t quarter_bytes) : quarter_bytes_(quarter_bytes) {}

  size_t quarter_bytes() const { return quarter_bytes_; }

  // For `bytes` <= quarter_bytes() that are published with `phase`.
  Place Take(size_t bytes, uint32_t phase) {
    // Whole cache lines.
    const size_t rounded = (bytes + 63) / 64 * 64;
    Place place;
    if (rounded > quarter_bytes_ - used_) {
      quarter_ = (quarter_ + 1) % 4;
      used_ = 0;
      // In the first turn there is nothing to wait for, and the phase may not
      // exist yet.
      place.must_wait = used_before_[quarter_];
      // A rank that publishes k has finished reading up to k - 2 (see
      // ShmWorld).
      place.free_at = last_phase_[quarter_] + 2;
    }
    place.offset = quarter_ * quarter_bytes_ + used_;
    used_ += rounded;
    last_phase_[quarter_] = phase;
    used_before_[quarter_] = true;
    return place;
  }

 private:
  const size_t quarter_bytes_;
  size_t quarter_ = 0;
  size_t used_ = 0;
  // The phase in which each quarter was last used.
  uint32_t last_phase_[4] = {};
  bool used_before_[4] = {};
};

}  // namespace elasticdl::collective
