// What parameter servers use of the memory that each of them may use
// (--ps_memory_limit), and how many of them the model needs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "elasticdl/common/mutex.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::master {

// Thread-safe.
class ServerMemory {
 public:
  // What a server says of itself, about once a second.
  void OnTelemetry(int server, const v1::Telemetry& telemetry);
  // There are servers 0 .. servers-1.
  void SetCount(int servers);

  // Why the model cannot be on so many servers, fewer than now; nothing if it
  // can, or if nothing is known. It fits if each uses at most `share` of its
  // limit, the fullest included: 1,024 buckets are not always the same number
  // for each.
  std::optional<std::string> WhyNot(int servers, double share) const;
  // There is a limit, and a server has not told yet what it uses (it is new, or
  // the master): WhyNot knows only a part of the model. Nothing if all have, or
  // if so many servers are not fewer than now.
  std::optional<std::string> WhyUnknown(int servers) const;

 private:
  mutable Mutex mu_;
  // Of the model's parts, as each server has told. Two servers tell of the same
  // part if it has a backup.
  std::map<int, std::map<int, int64_t>> bytes_ ABSL_GUARDED_BY(mu_);
  // 0: not known.
  int count_ ABSL_GUARDED_BY(mu_) = 0;
  // Of one part; 0: none.
  int64_t limit_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace elasticdl::master
