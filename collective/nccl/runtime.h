// NCCL in this process, and the worlds that were left but have not ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/collective/nccl.h"
#include "elasticdl/common/mutex.h"
#include "nccl/plugin.h"

namespace elasticdl::collective {

class NcclWorld;

// Thread-safe.
class NcclRuntime {
 public:
  NcclRuntime(const ElasticdlNcclTable* table, const ElasticdlNcclFacts& facts,
              const NcclOptions& options);
  // Waits for the worlds that were left.
  ~NcclRuntime();
  NcclRuntime(const NcclRuntime&) = delete;
  NcclRuntime& operator=(const NcclRuntime&) = delete;

  const ElasticdlNcclTable& table() const { return table_; }
  const ElasticdlNcclFacts& facts() const { return facts_; }
  const NcclOptions& options() const { return options_; }
  // Names the GPU on its host.
  std::string gpu() const { return facts_.gpu; }

  // For rank 0 of a new world; a new one for each attempt.
  absl::StatusOr<std::string> MakeId() const;
  // OK, or an error for a result of the table that is not in progress.
  absl::Status ToStatus(int result) const;

  // Keeps a world that was left until it has ended.
  void Keep(std::shared_ptr<NcclWorld> world);
  void CountWorld() { num_worlds_.fetch_add(1); }
  int64_t num_worlds() const { return num_worlds_.load(); }

 private:
  const ElasticdlNcclTable& table_;
  const ElasticdlNcclFacts facts_;
  const NcclOptions options_;
  std::atomic<int64_t> num_worlds_{0};
  Mutex mu_;
  // Shared with nobody else; each has a thread that ends it.
  std::vector<std::shared_ptr<NcclWorld>> left_ ABSL_GUARDED_BY(mu_);
};

}  // namespace elasticdl::collective
