// Where in its part of the shared memory a rank puts the data of a phase.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elasticdl::collective {

// The part is used from front to back and round again, whatever the sizes: data
// then goes to memory that the others' caches have dropped, which is written
// twice as fast as memory that they still hold. All ranks make the same calls,
// so a place is the same offset in the part of every rank.
//
// The part has quarters. Nothing is checked within a quarter; on entering one,
// all ranks must have finished reading what was in it. Thread-compatible.
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
      // The first time round there is nothing to wait for, and perhaps nobody
      // has got as far as that phase.
      place.must_wait = used_before_[quarter_];
      // Who publishes k has finished reading up to k - 2 (see ShmWorld).
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
  // In which a quarter was last used.
  uint32_t last_phase_[4] = {};
  bool used_before_[4] = {};
};

}  // namespace elasticdl::collective
