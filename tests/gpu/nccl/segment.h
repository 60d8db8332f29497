// Memory that the ranks of a test communicator share, whatever process they are
// in. It has no name: nothing is left behind when all of them are killed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace test_nccl {

constexpr int kMaxRanks = 16;
constexpr size_t kSlotBytes = size_t{1} << 20;

// What all ranks must call alike.
struct Operation {
  int32_t kind;
  int32_t type;
  int32_t root;
  uint64_t count;
};

struct RankState {
  // 0: has not come.
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> aborted;
  std::atomic<uint32_t> finalized;
  // Numbers of the last piece of data that the rank has shown, and that it has
  // read of all others.
  std::atomic<uint64_t> shown;
  std::atomic<uint64_t> read;
  Operation operation;
  char gpu[32];
  alignas(64) char slot[kSlotBytes];
};

// Where the ranks that are left meet.
struct ShrinkState {
  std::atomic<uint32_t> made;
  char name[64];
};
constexpr int kMaxShrinks = 8;

struct SharedState {
  uint64_t token;
  // For futex: grows with each change.
  std::atomic<uint32_t> changes;
  std::atomic<int32_t> attached;
  ShrinkState shrinks[kMaxShrinks];
  RankState ranks[kMaxRanks];
};

// Thread-safe.
class Segment {
 public:
  // Makes one, which lives as long as this process or somebody who has opened
  // it. Returns its name, of less than 128 bytes; empty when it cannot.
  static std::string Create();
  // Null if its creator has died, or never was.
  static std::shared_ptr<Segment> Open(const std::string& name);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  SharedState& state() { return *state_; }
  RankState& rank(int rank) { return state_->ranks[rank]; }
  // Tells everybody that something has changed.
  void Notify();
  // Until `done`, which is asked after each change, and now and then.
  void Await(const std::function<bool()>& done);

 private:
  explicit Segment(SharedState* state) : state_(state) {}
  SharedState* const state_;
};

// A zombie is dead, too.
bool IsDead(int pid);

}  // namespace test_nccl
