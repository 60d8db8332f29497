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
  // limit.
  std::optional<std::string> WhyNot(int servers, double share) const;

 private:
  mutable Mutex mu_;
  // Of the model's parts, as each server has told. Two servers tell of the same
  // part if it has a backup.
  std::map<int, std::map<int, int64_t>> bytes_ ABSL_GUARDED_BY(mu_);
  // Of one part; 0: none.
  int64_t limit_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace elasticdl::master
