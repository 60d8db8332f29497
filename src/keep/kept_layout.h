// What lies at the beginning of a memory that is kept. Only processes of one
// job read it, so it may differ between versions.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace elasticdl::keep {

inline constexpr uint64_t kMagic = 0x316574617453;
inline constexpr size_t kMostArrays = 16;
// Workers whose records are counted. Local jobs have few.
inline constexpr size_t kMostTotals = 2000;

struct KeptTotal {
  int64_t worker_id;
  int64_t records;
};

// What is known of one step besides the arrays.
struct KeptNote {
  int64_t lineage;
  double learning_rate;
  uint64_t num_totals;
  std::array<KeptTotal, kMostTotals> totals;
};

struct KeptArray {
  uint64_t offset;
  uint64_t bytes;
};

// The owner dies at any instruction, and others look only after that: the
// kernel has then carried out all of its stores before that instruction and
// none after it. So stores need the order of the program, and nothing else.
struct KeptHeader {
  uint64_t magic;
  uint64_t layout;
  // Whose it is: ids and pids may be reused, both at once are not.
  int64_t worker_id;
  int64_t pid;
  uint64_t num_arrays;
  std::array<KeptArray, kMostArrays> arrays;
  // Which step the arrays are at: `KeptWord`.
  std::atomic<uint64_t> word;
  // During an update (KeptState::progress).
  std::atomic<uint64_t> progress;
  std::atomic<uint64_t> count;
  // The note of a step is in one of them, the next one is written to the other.
  std::array<KeptNote, 2> notes;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free,
              "it is shared by processes");

struct KeptWord {
  enum Kind : uint64_t {
    // The arrays mean nothing.
    kNothing = 0,
    // They are those of `step`.
    kWhole = 1,
    // They are being updated from the step before to `step`.
    kUpdating = 2,
  };
  Kind kind = kNothing;
  uint64_t note = 0;
  int64_t step = 0;

  uint64_t Encode() const {
    return static_cast<uint64_t>(step) << 3 | note << 2 | kind;
  }
  static KeptWord Decode(uint64_t word) {
    return {static_cast<Kind>(word & 3), word >> 2 & 1,
            static_cast<int64_t>(word >> 3)};
  }
};

inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kFirstArray =
    (sizeof(KeptHeader) + kPageBytes - 1) / kPageBytes * kPageBytes;

}  // namespace elasticdl::keep
