// Which piece of the state is sent next, and how much of it each member has:
// joiners catch up while the others train
// (docs/design/0010-join-without-a-pause.md).
//
// The state is a ring of units. Pieces are sent in the order of the ring, again
// and again, so a member may start anywhere; it is level when it has received
// the whole ring. All members get each piece, so members that catch up at the
// same time share one transfer.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace elasticdl::elastic {

// Thread-compatible; pure. All members of a world have equal ones.
class StateStream {
 public:
  // [begin, end), which does not cross the end of the ring.
  struct Range {
    size_t begin = 0;
    size_t end = 0;
    size_t size() const { return end - begin; }
  };
  // What a member has: `have` units from `begin` on.
  struct Part {
    size_t begin = 0;
    size_t have = 0;
  };
  // Of one member; nothing = it is level. A part that is not whole units of
  // this ring counts as empty.
  using Parts = std::vector<std::optional<Part>>;

  // Goes on where the longest part ends. Parts that end elsewhere are given up:
  // their members begin there, too.
  StateStream(size_t units, Parts parts);

  size_t units() const { return units_; }
  // Somebody is behind.
  bool active() const { return num_behind_ > 0; }
  int num_behind() const { return num_behind_; }
  bool IsBehind(int rank) const;
  // Members with a lower rank that are behind.
  int NumBehindBefore(int rank) const;
  // Of a member that is behind.
  const Part& part(int rank) const;

  // The next piece, of at most `most` units (at least one). Somebody must be
  // behind.
  Range Next(size_t most) const;
  // Everybody has the piece. Returns those who are level now.
  std::vector<int> Passed(const Range& piece);

 private:
  size_t units_;
  size_t cursor_ = 0;
  Parts parts_;
  int num_behind_ = 0;
};

// A part as at most two ranges.
std::vector<StateStream::Range> RangesOf(const StateStream::Part& part,
                                         size_t units);

}  // namespace elasticdl::elastic
