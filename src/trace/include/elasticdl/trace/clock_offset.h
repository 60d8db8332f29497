// Estimates the offset between two clocks from echoed messages.
#pragma once

#include <cstdint>

namespace elasticdl::trace {

// Thread-compatible. The echo with the shortest round trip is the most
// accurate: the other clock was read somewhere between sending and receiving.
// Its accuracy decreases with its age, because clocks drift (at most about 100
// ns per ms).
class ClockOffset {
 public:
  // A message left at `sent`, was there at `there` (of the other clock), and
  // its echo came at `received`.
  void Add(int64_t sent, int64_t there, int64_t received) {
    if (received < sent) return;
    const int64_t error = (received - sent) / 2;
    if (known_ && error > ErrorAt(received)) return;
    known_ = true;
    offset_ = there - (sent + error);
    error_ = error;
    measured_ = received;
  }

  // There will be no echo: the hosts' wall clocks are taken for equal, which
  // they are up to a few milliseconds where their time is synchronised.
  void Assume(int64_t now, int64_t wall) {
    if (known_) return;
    known_ = true;
    offset_ = wall - now;
    error_ = kWallError;
    measured_ = now;
  }

  // What to add to this clock to get the other; 0 before the first echo.
  int64_t offset() const { return offset_; }
  // How wrong it may be at that time.
  int64_t ErrorAt(int64_t now) const {
    return known_ ? error_ + (now - measured_) / kDrift : 0;
  }
  bool known() const { return known_; }

 private:
  static constexpr int64_t kDrift = 10000;
  static constexpr int64_t kWallError = 10'000'000;

  bool known_ = false;
  int64_t offset_ = 0;
  int64_t error_ = 0;
  int64_t measured_ = 0;
};

}  // namespace elasticdl::trace
