#include "elasticdl/flags/slurm.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "elasticdl/common/file.h"
#include "elasticdl/flags/environment.h"

namespace elasticdl::flags {
namespace {

// The number in "4" or "a100:4"; `fallback` for anything else.
int64_t Number(absl::string_view text, int64_t fallback) {
  const size_t colon = text.rfind(':');
  if (colon != text.npos) text.remove_prefix(colon + 1);
  int64_t number = 0;
  return absl::SimpleAtoi(text, &number) && number >= 0 ? number : fallback;
}

}  // namespace

int64_t SlurmAllocation::Workers(int64_t servers) const {
  const int64_t free = gpus > 0 ? gpus : tasks - servers;
  return std::max<int64_t>(1, free);
}

std::string SlurmAllocation::Owner() const {
  return absl::StrCat("job ", job_id, " of Slurm",
                      cluster.empty() ? "" : " on ", cluster);
}

std::optional<SlurmAllocation> FindSlurmAllocation(
    const std::function<std::string(const std::string&)>& variable) {
  SlurmAllocation found;
  found.job_id = variable("SLURM_JOB_ID");
  if (found.job_id.empty()) return std::nullopt;
  found.cluster = variable("SLURM_CLUSTER_NAME");
  const int64_t nodes =
      std::max<int64_t>(1, Number(variable("SLURM_JOB_NUM_NODES"), 1));
  // Without --ntasks there is one for each node.
  found.tasks = std::max<int64_t>(1, Number(variable("SLURM_NTASKS"), nodes));
  found.cpus_per_task =
      std::max<int64_t>(1, Number(variable("SLURM_CPUS_PER_TASK"), 1));
  found.gpus =
      Number(variable("SLURM_GPUS"),
             nodes * Number(variable("SLURM_GPUS_ON_NODE"),
                            Number(variable("SLURM_GPUS_PER_NODE"), 0)));
  // The numbers of special steps (batch, interactive) are near 2^32.
  const int64_t step = Number(variable("SLURM_STEP_ID"), -1);
  found.in_step = step >= 0 && step < 0xfffffff0;
  found.restarts = Number(variable("SLURM_RESTART_COUNT"), 0);
  if (nodes == 1) found.only_node = variable("SLURM_JOB_NODELIST");
  return found;
}

std::optional<SlurmAllocation> FindSlurmAllocation() {
  // A container in an allocation may have its variables, but not its programs.
  for (const absl::string_view dir : absl::StrSplit(GetEnv("PATH"), ':')) {
    if (FileExists(JoinPath(std::string(dir), "srun"))) {
      return FindSlurmAllocation(GetEnv);
    }
  }
  return std::nullopt;
}

}  // namespace elasticdl::flags
