// Which data a server has applied: the names of pushes, kept as intervals.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "elasticdl/v1/ps.pb.h"

namespace elasticdl::ps {

// A pure state machine, and a value. Thread-compatible. Small: neighbouring
// ranges become one, and epochs that are over are forgotten.
class AppliedSet {
 public:
  enum class Answer {
    kNew,
    // All of it is there.
    kThere,
    // A part of it is there, and a part is not: the data was cut differently.
    kTorn,
    // Of an epoch that is over.
    kForgotten,
  };
  Answer Test(const v1::PsPush& push) const;
  void Add(const v1::PsPush& push);
  void Remove(const v1::PsPush& push);
  // Forgets earlier epochs.
  void ForgetBefore(int32_t epoch);

  // Adds what is in `other`; takes out what is in `other`.
  void AddAll(const AppliedSet& other);
  void RemoveAll(const AppliedSet& other);

  int32_t oldest_epoch() const { return oldest_epoch_; }
  // How many intervals it holds.
  size_t size() const;

  v1::PsApplied ToProto() const;
  static AppliedSet FromProto(const v1::PsApplied& proto);

 private:
  // begin -> end; they neither overlap nor touch.
  using Intervals = std::map<int64_t, int64_t>;

  static void Insert(int64_t begin, int64_t end, Intervals& intervals);
  static void Remove(int64_t begin, int64_t end, Intervals& intervals);

  int32_t oldest_epoch_ = 0;
  std::map<int32_t, std::map<std::string, Intervals>> epochs_;
};

}  // namespace elasticdl::ps
