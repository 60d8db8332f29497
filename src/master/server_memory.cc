#include "server_memory.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/text.h"
#include "elasticdl/ps/bucket.h"

namespace elasticdl::master {

void ServerMemory::OnTelemetry(int server, const v1::Telemetry& telemetry) {
  MutexLock lock(mu_);
  std::map<int, int64_t>& parts = bytes_[server];
  parts.clear();
  for (const auto& [part, bytes] : telemetry.part_bytes()) {
    parts[part] = bytes;
  }
  // A server that has no part yet says 0.
  if (telemetry.limit_bytes() > 0) limit_ = telemetry.limit_bytes();
}

void ServerMemory::SetCount(int servers) {
  MutexLock lock(mu_);
  count_ = servers;
  bytes_.erase(bytes_.lower_bound(servers), bytes_.end());
}

std::optional<std::string> ServerMemory::WhyNot(int servers,
                                                double share) const {
  MutexLock lock(mu_);
  if (limit_ <= 0) return std::nullopt;
  std::map<int, int64_t> parts;
  for (const auto& [server, told] : bytes_) {
    for (const auto& [part, bytes] : told) {
      // A backup may not have all of it yet.
      parts[part] = std::max(parts[part], bytes);
    }
  }
  // More servers always help.
  if (static_cast<size_t>(servers) >= parts.size()) return std::nullopt;
  double total = 0;
  for (const auto& [part, bytes] : parts) total += static_cast<double>(bytes);
  const double each = share * static_cast<double>(limit_);
  const auto fits = [&](int count) {
    const int fullest = (ps::kBuckets + count - 1) / count;
    return total * fullest / ps::kBuckets <= each;
  };
  if (fits(servers)) return std::nullopt;
  int needed = servers + 1;
  while (needed < ps::kBuckets && !fits(needed)) ++needed;
  return absl::StrCat(
      "the model uses ", static_cast<int64_t>(total), " bytes on ",
      Count(static_cast<int64_t>(parts.size()), "parameter server"),
      ", and each may use ", limit_, " (--ps_memory_limit",
      share < 1 ? absl::StrCat(", of which ", std::lround(100 * (1 - share)),
                               " % are kept free")
                : "",
      "): it needs at least ", needed, ", not ", servers);
}

std::optional<std::string> ServerMemory::WhyUnknown(int servers) const {
  MutexLock lock(mu_);
  if (servers >= count_) return std::nullopt;
  for (int server = 0; limit_ > 0 && server < count_; ++server) {
    if (bytes_.count(server) != 0) continue;
    return absl::StrCat("parameter server ", server,
                        " has not said yet how much memory it uses "
                        "(--ps_memory_limit); try again in some seconds");
  }
  return std::nullopt;
}

}  // namespace elasticdl::master
